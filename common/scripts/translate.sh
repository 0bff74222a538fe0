#!/usr/bin/env bash
# Usage: translate.sh    makes the translated texts (make translate), in TO (build/zh_CN); LANGUAGE (zh_CN)
#
# labs/po/README.md says how. Texts without a translation are there in English, so that links lead somewhere.

set -u
language=${LANGUAGE:-zh_CN}
to=${TO:-${BUILD:-build}/$language}
[[ -d labs/po/$language ]] || {
    echo "make translate: there is no labs/po/$language" >&2
    exit 2
}
rm -rf "$to"
for text in README.md labs/*.md labs/*/handout.md labs/*/figures; do
    mkdir -p "$to/$(dirname "$text")"
    cp -R "$text" "$to/$text"
done
for po in labs/po/"$language"/*.po; do
    name=$(basename "$po" .po)
    text=labs/$name/handout.md
    [[ $name != README ]] || text=README.md
    po4a-translate -f text -o markdown -o neverwrap -M UTF-8 -L UTF-8 -k 0 -m "$text" -p "$po" -l "$to/$text" 2>"$to/errors" || {
        cat "$to/errors" >&2
        exit 1
    }
done
rm -f "$to/errors"
echo "make translate: $to"
