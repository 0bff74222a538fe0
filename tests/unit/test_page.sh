#!/usr/bin/env bash
# The page of a run, in a real browser: its numbers are those of the trace; arrows lead from ranks that wait to the rank that is
# missing, while the job hangs; equal weights have one letter; names do no harm; the view survives a reload of the
# data; it works on a phone's width and from the keyboard.

. tests/lib.sh
command -v chromium >/dev/null && command -v chromedriver >/dev/null && /usr/bin/python3 -c 'import selenium' 2>/dev/null || skip "chromium and python3-selenium are not there"
page=$build/page
[[ -x $page && -x $build/compile-step ]] || {
    echo "$page or $build/compile-step is not there: make them first" >&2
    exit 2
}
limit=300
refused 'usage: page' "$page"
refused 'there is no trace in' "$page" "$folder/nothing" "$folder/p.html"
mkdir "$folder/empty"
refused 'no file rank-0.jsonl' "$page" "$folder/empty" "$folder/p.html"

HVDLAB_TRACE=$folder/trace HVD_LAYOUT=0,1,0,1 succeeds common/scripts/mpi.sh run 4 "$build/solution_06" --width 1 --epochs 2 \
    --data synthetic --images 640 --log-dir "$folder/logs"
succeeds "$page" "$folder/trace" "$folder/whole.html"
# One rank with other weights; a name that would end a script.
cp -r "$folder/trace" "$folder/changed"
/usr/bin/python3 - "$folder/changed" <<'PYTHON'
import json, sys
path = sys.argv[1] + "/rank-3.jsonl"
events = [json.loads(line) for line in open(path)]
steps = [e for e in events if e["event"] == "step"]
steps[-1]["weights"] += 1e-9
for e in events:
    if e["event"] == "start":
        e["program"] = "</script><script>alert(1)</script>&amp;"
open(path, "w").writelines(json.dumps(e) + "\n" for e in events)
first = sys.argv[1] + "/rank-0.jsonl"
text = open(first).read().replace('"program":"solution_06"', '"program":"</script><script>alert(1)</script>"')
open(first, "w").write(text)
PYTHON
succeeds "$page" "$folder/changed" "$folder/changed.html"

# One process: replicas on three devices, and a pipeline of two stages.
HVDLAB_TRACE=$folder/replicas HVDLAB_DEVICES=3 succeeds "$build/mlp" --seed 1 --epochs 1 --images 2000 --data synthetic \
    --checkpoint-dir "$folder/checkpoints"
succeeds "$page" "$folder/replicas" "$folder/replicas.html"
HVDLAB_TRACE=$folder/stages HVDLAB_DEVICES=2 succeeds "$build/solution_split" --epochs 1 --images 256 --data synthetic \
    --batch-size 64 --micro-batches 4 --pace 100
succeeds "$page" "$folder/stages" "$folder/stages.html"

# A job that hangs: rank 2 never comes to the second sum.
cat >"$folder/hangs.c" <<'C'
#include "hvdlab.h"
#include <unistd.h>
int main(int argc, char **argv)
{
    hvd_init();
    Args args = parse_args(argc, argv);
    float value = 1;
    hvd_allreduce(&value, 1, HVD_SUM);
    if (hvd_rank() == 2)
        for (;;)
            sleep(1);
    hvd_allreduce(&value, 1, HVD_SUM);
    (void)args;
    return 0;
}
C
succeeds "$build/compile-step" "$folder/hangs.c" "$folder/hangs"
"$page" --live "$folder/hung" "$folder/live.html" >/dev/null 2>"$folder/live.err" &
live=$!
HVDLAB_TRACE=$folder/hung HVD_STALL_SECONDS=0 common/scripts/mpi.sh run 4 "$folder/hangs" >/dev/null 2>&1 &
job=$!
sleep 3

cat >"$folder/look.py" <<'PYTHON'
import json, sys, time
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
folder = sys.argv[1]
options = Options()
for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1100,1400"):
    options.add_argument(word)
options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
def rows():
    return [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")]
def complaints():
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE" and "favicon" not in entry["message"]]
try:
    browser.get("file://" + folder + "/whole.html")
    assert browser.find_element(By.ID, "title").text == "solution_06 on 4 ranks"
    shares = browser.execute_script("return run.ranks.map(r => shares(r, run.end))")
    for rank, row in enumerate(rows()):
        events = [json.loads(line) for line in open(f"{folder}/trace/rank-{rank}.jsonl")]
        assert row[0] == str(rank) and row[1] == f"host {rank % 2}" and row[3] == "has ended", row
        steps = [e for e in events if e["event"] == "step"]
        assert row[6:9] == [str(steps[-1]["epoch"] + 1), str(steps[-1]["step"] + 1), "A"], row
        answers = [e for e in events if e["event"] == "answers" and e["training"] > 0]
        assert abs(float(row[9]) - answers[-1]["loss"] / answers[-1]["images"]) < 6e-5, row
        batch = next(e for e in events if e["event"] == "fit")["train_batch"]
        rate = (len(steps) - 1) * batch / (steps[-1]["t"] - steps[0]["t"])
        assert abs(float(row[10]) - rate) <= 0.51, (row, rate)
        # Time in calls, counted apart: from the outermost begin to its end.
        depth, begin, inside = 0, 0, 0
        for e in events:
            if e["event"] in ("collective_begin", "message_begin", "wait_begin"):
                begin = e["t"] if depth == 0 else begin
                depth += 1
            elif e["event"] in ("collective_end", "message_end", "wait_end") and depth > 0:
                depth -= 1
                inside += e["t"] - begin if depth == 0 else 0
        share = shares[rank]
        assert abs(share["wait"] + share["move"] - inside) < 1e-6, (share, inside)
        assert abs(share["wait"] + share["move"] + share["compute"] - (events[-1]["t"] - events[0]["t"])) < 1e-6, share
    # The last of the ranks to come to a call waits least.
    assert min(s["wait"] for s in shares) < max(s["wait"] for s in shares)
    # Earlier: the slider, by mouse and by key.
    browser.execute_script("const s = document.getElementById('slider'); s.value = 400; s.dispatchEvent(new Event('input'))")
    middle = [row[7] for row in rows()]
    slider = browser.find_element(By.ID, "slider")
    before = browser.find_element(By.ID, "moment").text
    for _ in range(20):
        slider.send_keys(Keys.ARROW_LEFT)
    assert browser.find_element(By.ID, "moment").text != before
    # A phone.
    for width in (360, 1100):
        browser.set_window_size(width, 900)
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
        time.sleep(0.2)
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        assert wide <= width, ("wider than the window", wide, width)
    assert not complaints(), complaints()

    browser.get("file://" + folder + "/changed.html")
    assert [row[8] for row in rows()] == ["A", "A", "A", "B"], rows()
    colours = browser.execute_script("return [...document.querySelectorAll('#ranks circle')].map(c => c.getAttribute('fill'))")
    assert len(set(colours)) == 2, colours
    assert browser.find_element(By.ID, "title").text.startswith("</script><script>alert(1)</script>")
    assert not complaints(), complaints()

    # Replicas of one process: the same updates, and the bytes of their sums.
    browser.get("file://" + folder + "/replicas.html")
    events = [json.loads(line) for line in open(f"{folder}/replicas/rank-0.jsonl")]
    assert browser.find_element(By.ID, "title").text == "mlp on 3 replicas"
    table = rows()
    assert len(table) == 3 and [row[8] for row in table] == ["A"] * 3, table
    for replica in range(3):
        sums = [e for e in events if e["event"] == "sum_begin" and e["replica"] == replica]
        updates = [e for e in events if e["event"] == "apply" and e["replica"] == replica]
        sent = browser.execute_script("return run.ranks[arguments[0]].calls.reduce((sum, c) => sum + c[4], 0)", replica)
        assert sums and sent == sum(e["bytes"] for e in sums), (sent, len(sums))
        assert table[replica][7] == str(len(updates)), (table[replica], len(updates))
    # Stages of a pipeline: what each has waited for the other, and an arrow while it waits.
    browser.get("file://" + folder + "/stages.html")
    events = [json.loads(line) for line in open(f"{folder}/stages/rank-0.jsonl")]
    assert browser.find_element(By.ID, "title").text == "solution_split on 2 stages"
    shares = browser.execute_script("return run.ranks.map(r => shares(r, run.end))")
    for stage in range(2):
        waits = [e for e in events if e["event"] in ("stage_begin", "stage_end") and e["stage"] == stage and e["call"] == "receive"]
        waited = sum(end["t"] - begin["t"] for begin, end in zip(waits[::2], waits[1::2]))
        assert waits and abs(shares[stage]["wait"] - waited) < 1e-6, (stage, shares, waited)
        longest = max(zip(waits[::2], waits[1::2]), key=lambda pair: pair[1]["t"] - pair[0]["t"])
        browser.execute_script("moment = arguments[0]; draw()", (longest[0]["t"] + longest[1]["t"]) / 2)
        arrows = [path.get_attribute("data-wait") for path in browser.find_elements(By.CSS_SELECTOR, "#ranks path[data-wait]")]
        assert f"{stage}-{1 - stage}" in arrows, (stage, arrows)
    assert not complaints(), complaints()

    browser.get("file://" + folder + "/live.html")
    for _ in range(100):
        arrows = sorted(path.get_attribute("data-wait") for path in browser.find_elements(By.CSS_SELECTOR, "#ranks path[data-wait]"))
        if arrows == ["0-2", "1-2", "3-2"]:
            break
        time.sleep(0.1)
    assert arrows == ["0-2", "1-2", "3-2"], arrows
    table = rows()
    assert table[2][3] == "in no call" and table[0][3] == "hvd_allreduce" and table[0][4] == "rank 2", table
    # The view survives a reload of the data.
    browser.execute_script("const s = document.getElementById('slider'); s.value = 500; s.dispatchEvent(new Event('input')); window.scrollTo(0, 120)")
    at = browser.execute_script("return [moment, scrollY, run.end]")
    time.sleep(3)
    later = browser.execute_script("return [moment, scrollY, run.end]")
    assert later[:2] == at[:2], (at, later)
    assert not [c for c in complaints() if "ERR_FILE_NOT_FOUND" not in c["message"]], complaints()
    if len(sys.argv) > 2:
        for name in ("whole", "changed", "live"):
            browser.get("file://" + folder + "/" + name + ".html")
            time.sleep(1.5)
            browser.save_screenshot(f"{sys.argv[2]}/{name}.png")
finally:
    browser.quit()
PYTHON
succeeds /usr/bin/python3 "$folder/look.py" "$folder" ${SCREENSHOTS:+"$SCREENSHOTS"}
kill $job 2>/dev/null
wait $job 2>/dev/null
kill $live
wait $live
[[ ! -s $folder/live.err ]] || fail "page --live complains: $(cat "$folder/live.err")"
conclude
