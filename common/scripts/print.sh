#!/usr/bin/env bash
# Usage: print.sh    makes pages and PDFs of the handouts (make print), in TO (build/print)
#
# TO/student: as make release cuts them; TO/instructor: whole, with answers and solutions open. In each the pages keep the
# folders of the kit, so that links between them work without a network, figures are within the page, and beside each
# page is its PDF. PDF=0 leaves the PDFs out.

set -euo pipefail
scripts=$(dirname "$0")
goal="make print"
. common/scripts/folders.sh
target=${TO:-${BUILD:-build}/print}
trap 'rm -rf "$fresh"' EXIT
begin_folder "$target"
to=$fresh
texts=(README.md CONTRIBUTING.md labs/*.md labs/*/handout.md labs/01-baseline/keras.md)

# page FROM COPY: FROM as HTML in COPY; the text is on standard input.
page()
{
    local from=$1 html=$2/${1%.md}.html
    mkdir -p "$(dirname "$html")"
    # Where a link leads to a text that is a page, it leads to the page.
    pandoc --from gfm --to html5 --self-contained --metadata pagetitle="$(sed -n 's/^# //p' "$from" | head -n 1)" \
        --css "$scripts/print.css" --resource-path "$(dirname "$from")" --output "$html.new" 2>"$to/errors" || {
        cat "$to/errors" >&2
        exit 1
    }
    sed -E 's,(href="[^":]*)\.md(#[^"]*)?",\1.html\2",g' "$html.new" >"$html"
    rm "$html.new"
}

for text in "${texts[@]}"; do
    sed 's/^<details>/<details open>/' "$text" | page "$text" "$to/instructor"
    case $text in
    CONTRIBUTING.md | labs/instructor.md | labs/adopting.md | labs/sealed-grading.md) ;;
    *) awk -v measured="${MEASURED:-}" -f "$scripts/cut.awk" "$text" | sed 's/^<details>/<details open>/' | page "$text" "$to/student" ;;
    esac
done
rm -f "$to/errors"
# A link to what is no page (sources, tests) stays as text.
while IFS= read -r html; do
    while IFS= read -r link; do
        [[ ! -e $(dirname "$html")/${link%%#*} ]] || continue
        LINK=$link awk '
            # (As it stands: an address may have any letter that is special to sed.)
            {
                link = "href=\"" ENVIRON["LINK"] "\""
                for (line = $0; at = index(line, link); line = substr(line, at + length(link)))
                    printf "%sdata-source%s", substr(line, 1, at - 1), substr(link, 5)
                print line
            }' "$html" >"$html.new"
        mv "$html.new" "$html"
    done < <(grep -oE 'href="[^"#:][^":]*"' "$html" | sed 's/href="//; s/"$//' | sort -u)
done < <(find "$to" -name '*.html')
[[ ${PDF:-1} == 0 ]] || find "$to" -name '*.html' | sort | while read -r html; do
    chromium --headless --no-sandbox --disable-gpu --no-pdf-header-footer --print-to-pdf="${html%.html}.pdf" "file://$html" \
        >/dev/null 2>&1 </dev/null && [[ -s ${html%.html}.pdf ]] || {
        echo "make print: chromium makes no PDF of $html" >&2
        exit 1
    }
done || exit 1
pages=$(find "$to" -name '*.html' | wc -l) pdfs=$(find "$to" -name '*.pdf' | wc -l)
end_folder "$target"
echo "make print: $pages pages, $pdfs PDFs: $target/student, $target/instructor"
