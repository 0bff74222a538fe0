#!/usr/bin/env bash
# Usage: tests/lint.sh
#
# What a machine can see without running anything: shellcheck reads the scripts, cppcheck the C sources
# as they are built without CUDA; tests/PROMISES.md must name tests that are there; and some words are never
# right. One line for each finding; status 1 if there is any.

set -u
cd "$(dirname "$0")/.." || exit 2
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
status=0

mapfile -t scripts < <(find common labs tests -name '*.sh' -o -name '*.sbatch'; grep -lE '^#!.*sh$' .ci/*)
shellcheck --external-sources --format=gcc --severity=warning "${scripts[@]}" || status=1

# What never returns; else cppcheck goes on behind it.
cat >"$folder/hvdlab.cfg" <<'END'
<?xml version="1.0"?>
<def format="2">
  <function name="die"><noreturn>true</noreturn><arg nr="1"/><arg nr="variadic"/></function>
  <define name="EACH(at, events, name)" value="for (int at = -1; (at = event_find(events, name, at + 1)) &gt;= 0;)"/>
  <define name="cJSON_ArrayForEach(element, array)" value="for (element = (array)->child; element; element = element->next)"/>
  <function name="fuzz_finding"><noreturn>true</noreturn><arg nr="1"/><arg nr="2"/><arg nr="3"/></function>
  <function name="check_failed"><noreturn>true</noreturn><arg nr="1"/><arg nr="2"/><arg nr="3"/></function>
</def>
END
# Left out, since all that they say here is wrong: uninitvar does not see arrays that a loop fills (the
# compilers' own warning does), invalidFunctionArg takes a softmax for one without classes, and memory
# that holds numbers of several types is what a library like this one is made of.
# Forgeries are not ours to improve, and some are made to keep a reader busy.
shopt -s extglob
cppcheck --quiet -j "$(common/scripts/cores.sh)" --std=c11 --language=c --template=gcc --error-exitcode=1 --inline-suppr \
    --enable=warning,performance,portability --library="$folder/hvdlab.cfg" -Icommon -Itests \
    --suppress=missingIncludeSystem --suppress=uninitvar --suppress=invalidFunctionArg \
    --suppress=invalidPointerCast -UHVDLAB_CUDA -UHVDLAB_EMULATED common/*/*.c tests/!(forgeries)/*.c || status=1

# One version.
version=$(sed -n 's/^#define HVDLAB_VERSION "\(.*\)"/\1/p' common/run/args.h)
grep -qx "version: $version" CITATION.cff || { echo "CITATION.cff has another version than common/run/args.h, $version" >&2; status=1; }

# A promise names the test that holds it.
while read -r file; do
    [[ -e $file ]] || { echo "tests/PROMISES.md: there is no $file" >&2; status=1; }
done < <(grep -ohE '\btests/[[:alnum:]_/.]*[[:alnum:]]' tests/PROMISES.md)

# Messages that a handout quotes, as sources print them.
while IFS=: read -r file line check; do
    check=${check#*check: }
    bash -c "${check% -->}" || { echo "$file:$line: the source has it otherwise: ${check% -->}" >&2; status=1; }
done < <(grep -nHoE '<!-- check: grep -q [^>]* common/[^ ]* -->' README.md labs/*.md labs/*/*.md)

# The table of settings.
while read -r row; do
    grep -qxF "$row" labs/devices.md || { echo "labs/devices.md lacks this row of common/base/settings.def: $row" >&2; status=1; }
done < <(awk -F'"' '/^SETTING/ { split($1 "," $3, word, /[(,] */); gsub(/\|/, ", ", $2)
    otherwise = word[3] ~ /^(SECONDS|BYTES)$/ ? word[7] : word[3] == "CHOICE" ? $2 : "not set"
    sub(/,.*/, "", otherwise)
    printf "| `%s` | %s | %s | %s |\n", word[2], $2, otherwise, $4 }' common/base/settings.def)
if grep -rn 'getenv("HVD' common --include='*.c' | grep -vE '^common/(base/(launcher|role)|watch/arranged|tools/watch)\.c:'; then
    echo "read it with common/base/setting.h" >&2
    status=1
fi

# Words that dictionaries for learners lack, or that a reader finds in no manual (a diagnosis keeps its name).
if grep -rIniE --exclude='*.svg' --exclude-dir=corpus --exclude=lint.sh \
    "\b(pretend(s|ed)?|crew|strangers?|in vain|for ever|nobody's fault|the library is wrong here)\b|(^|[^-[:alnum:]_])anew\b" \
    README.md CONTRIBUTING.md Makefile .ci common labs steps solutions tests; then
    echo "write: simulated, thread pool, unknown client, without progress, forever, not caused by the program," \
        "internal error, again" >&2
    status=1
fi
exit $status
