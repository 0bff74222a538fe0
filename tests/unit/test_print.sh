#!/usr/bin/env bash
# Pages and PDFs of the handouts: all are there, links lead to pages that are there, nothing comes from a network, fonts are in the
# PDFs, and students' copies have no answer.

. tests/lib.sh
limit=600
for each in pandoc chromium pdffonts pdftotext; do
    command -v $each >/dev/null || skip "$each is not there"
done
TO=$folder/print succeeds common/scripts/print.sh
mkdir "$folder/bin"
printf '#!/bin/sh\nexit 3\n' | tee "$folder/bin/pandoc" >"$folder/bin/chromium"
chmod +x "$folder/bin"/*
run env PATH="$folder/bin:$PATH" TO="$folder/print" common/scripts/print.sh
[[ $status -ne 0 && -s $folder/print/student/README.html ]] || fail "without pandoc: status $status, or the older pages are gone"
texts=(README.md CONTRIBUTING.md labs/*.md labs/*/handout.md labs/01-baseline/keras.md)
for text in "${texts[@]}"; do
    for kind in instructor student; do
        [[ $kind == instructor || $text != @(CONTRIBUTING|labs/instructor|labs/adopting|labs/sealed-grading).md ]] || continue
        page=$folder/print/$kind/${text%.md}
        [[ -s $page.html && -s $page.pdf ]] || { fail "$kind: no page or no PDF of $text"; continue; }
        # What a browser would fetch.
        ! grep -oE '(src|srcset)="https?:[^"]*"|<link[^>]*https?:[^>]*>|@import|url\(https?:[^)]*\)' "$page.html" ||
            fail "$kind: $text needs a network"
        while read -r link; do
            [[ -e $(dirname "$page")/${link%%#*} ]] || fail "$kind: $text: a link to nothing: $link"
            [[ $link != *.html#* ]] || grep -q "id=\"${link#*#}\"" "$(dirname "$page")/${link%%#*}" || fail "$kind: $text: no such place: $link"
        done < <(grep -oE 'href="[^"#:][^":]*"' "$page.html" | sed 's/href="//; s/"$//' | sort -u)
        pdffonts "$page.pdf" | awk 'NR > 2 && $(NF - 4) != "yes" { bad = 1 } END { exit bad || NR < 3 }' || fail "$kind: $text: a font is not in the PDF"
    done
done
! grep -lE '<summary>(Answer|Solution)' -r "$folder/print/student" || fail "a student's page has an answer"
grep -q 'for (int hop' <(pdftotext "$folder/print/instructor/labs/03-allreduce/handout.pdf" -) || fail "the instructor's PDF hides the solutions"
! grep -q 'for (int hop' <(pdftotext "$folder/print/student/labs/03-allreduce/handout.pdf" -) || fail "the students' PDF shows a solution"
conclude
