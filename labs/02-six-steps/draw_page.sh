#!/usr/bin/env bash
# Usage: draw_page.sh
#
# Draws figures/page.png (in FIGURES, if it is set): the page of a real run of step 6, at a moment when all ranks wait for
# rank 2, whose device is slow. Chromium takes the picture. The program is cut for it, whatever a student has made of steps/.

. common/scripts/measuring.sh
compile step_06
make -s "$build/page"
mv "$work/yours" "$work/solution_06" # the page's title
rm -rf "$work/trace"
# shellcheck disable=SC2016 # each rank expands it
HVDLAB_TRACE=$work/trace run 4 bash -c 'exec "$0" "$@" --pace $((OMPI_COMM_WORLD_RANK == 2 ? 600 : 150))' "$work/solution_06" \
    --data synthetic --images 480 --batch-size 8 --width 1 --epochs 1 --seed 1 >&2
"$build/page" "$work/trace" "$work/page.html" >&2
cat >>"$work/page.html" <<'END'
<script>
const waits = t => run.ranks.every(r => r.rank === 2 || awaited(r, current(r, t), t).join() === "2");
const at = [...Array(1000).keys()].find(v => v > 550 && waits(run.begin + v / 1000 * (run.end - run.begin)));
if (at) { $("slider").value = at; $("slider").dispatchEvent(new Event("input")); }
</script>
END
picture=${FIGURES:-labs/02-six-steps/figures}/page.png
chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size=760,700 --screenshot="$work/page.png" \
    "file://$(realpath "$work/page.html")" >"$work/page.log" 2>&1 && mv "$work/page.png" "$picture" || {
    cat "$work/page.log" >&2
    exit 1
}
