#!/usr/bin/env bash
# The page of a run, in a real browser: its numbers are those of the trace; arrows lead from ranks that wait to the rank that is
# missing, while the job hangs; equal weights have one letter; names do no harm; the view survives a reload of the
# data; it works on a phone's width and from the keyboard. Of a folder with files of two runs it shows the newer
# one; a run that was killed has ended, and says which ranks have no end of their own; bytes of messages and of
# collective calls are those that formulas give; waiting is waiting in any call; checkpoints have the names that
# files have.

. tests/lib.sh
page=$build/page
# A loss and weights that are not finite are null in a trace; node draws the page on a stand-in of a document.
mkdir "$folder/nan"
printf '%s\n' '{"event":"start","t":1,"time":100,"job":"j","program":"p","size":1,"rank":0,"node":0,"locked_on":""}' \
    '{"event":"answers","t":1.1,"training":1,"images":10,"loss":23}' '{"event":"answers","t":1.2,"training":1,"images":10,"loss":null}' \
    '{"event":"step","t":1.3,"epoch":0,"step":0,"weights":null}' '{"event":"end","t":2,"status":0}' >"$folder/nan/rank-0.jsonl"
if [[ -x $page ]] && command -v node >/dev/null; then
    cat >"$folder/draw.js" <<'JS'
const html = require("fs").readFileSync(process.argv[2], "utf8"), parts = {};
global.window = global;
global.addEventListener = () => {};
global.document = { getElementById: id => parts[id] = parts[id] || { addEventListener() {} } };
for (const script of html.matchAll(/<script>([\s\S]*?)<\/script>/g)) (0, eval)(script[1]);
console.log(parts.table.innerHTML + parts.losses.innerHTML + parts.ranks.innerHTML);
JS
    succeeds "$page" "$folder/nan" "$folder/nan.html"
    succeeds node "$folder/draw.js" "$folder/nan.html"
    grep -q '<td>?</td><td>not finite</td>' "$folder/out" || fail "a loss or weights that are not finite: $(cat "$folder/out")"
    ! grep -qE 'NaN|undefined' "$folder/out" && [[ $(grep -o 'points="[^"]*"' "$folder/out" | grep -o , | wc -l) -eq 1 ]] || fail "the line of the losses: $(cat "$folder/out")"
fi
command -v chromium >/dev/null && command -v chromedriver >/dev/null && /usr/bin/python3 -c 'import selenium' 2>/dev/null || {
    [[ $failures -eq 0 ]] || conclude
    skip "chromium and python3-selenium are not there"
}
[[ -x $page && -x $build/compile-step ]] || {
    echo "$page or $build/compile-step is not there: make them first" >&2
    exit 2
}
limit=300
refused 'usage: page' "$page"
refused "there is no trace in $folder/nothing: run a program with HVDLAB_TRACE=$folder/nothing first" "$page" "$folder/nothing" "$folder/p.html"
refused "there is no trace in $page: Not a directory" "$page" "$page" "$folder/p.html"
mkdir "$folder/empty"
touch "$folder/empty/rank--1.jsonl"
refused 'run a program with HVDLAB_TRACE=' "$page" "$folder/empty" "$folder/p.html"

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

# Messages of three all-reduces, and collective calls, whose bytes formulas give: COUNT floats each. The last rank
# comes late to its first message and to MPI_Finalize. With "tree" alone: the tree alone, and rank 1 is killed.
cat >"$folder/bytes.c" <<'C'
#include <mpi.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "hvdlab.h"
enum { COUNT = 12000, BYTES = COUNT * 4 };
static float values[COUNT], other[2 * COUNT];
static int rank, size;
static void to(int peer, const void *data, int count) { MPI_Send(data, count, MPI_FLOAT, peer, 3, MPI_COMM_WORLD); }
static void from(int peer, void *data) { MPI_Recv(data, 2 * COUNT, MPI_FLOAT, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
static void gather(void)
{
    if (rank > 0) {
        to(0, values, COUNT);
        from(0, other);
        return;
    }
    for (int r = 1; r < size; r++)
        from(MPI_ANY_SOURCE, other);
    for (int r = 1; r < size; r++)
        to(r, values, COUNT);
}
static void ring(void)
{
    int part = COUNT / size;
    MPI_Request requests[2];
    for (int hop = 0; hop < 2 * (size - 1); hop++) {
        MPI_Irecv(other, COUNT, MPI_FLOAT, (rank + size - 1) % size, 4, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(values, part, MPI_FLOAT, (rank + 1) % size, 4, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}
static void tree(void)
{
    int left = 2 * rank + 1, right = left + 1, above = (rank - 1) / 2;
    if (left < size)
        from(left, other);
    if (right < size)
        from(right, other);
    if (rank > 0) {
        to(above, values, COUNT);
        from(above, other);
    }
    if (left < size)
        to(left, values, COUNT);
    if (right < size)
        to(right, values, COUNT);
}
int main(int argc, char **argv)
{
    hvd_init();
    (void)argv;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1) {
        tree();
        if (rank == 1)
            raise(SIGKILL);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (rank == size - 1)
        usleep(700000);
    gather();
    ring();
    tree();
    MPI_Bcast(values, COUNT, MPI_FLOAT, 1, MPI_COMM_WORLD);
    MPI_Allreduce(values, other, COUNT, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    int counts[size];
    for (int r = 0; r < size; r++)
        counts[r] = COUNT / size;
    MPI_Reduce_scatter(values, other, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Scatter(values, COUNT / size, MPI_FLOAT, other, COUNT / size, MPI_FLOAT, 2, MPI_COMM_WORLD);
    MPI_Comm pair;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &pair);
    MPI_Barrier(pair);
    HvdGroup row = hvd_group_split(rank / 2), column = hvd_group_split(rank % 2); // of one name
    usleep(rank == 1 ? 300000 : 0);
    MPI_Barrier(row.comm);
    MPI_Barrier(column.comm);
    if (rank == size - 1)
        usleep(700000);
    return 0; // and MPI_Finalize
}
C
succeeds "$build/compile-step" "$folder/bytes.c" "$folder/bytes"
HVDLAB_TRACE=$folder/bytes-trace succeeds common/scripts/mpi.sh run 6 "$folder/bytes"
succeeds "$page" "$folder/bytes-trace" "$folder/bytes.html"
# A function of the program's own as the all-reduce of a training: its messages count, the frame around it does not.
HVDLAB_TRACE=$folder/frame succeeds common/scripts/mpi.sh run 3 "$build/solution_ring" --data synthetic --epochs 1 --images 128 \
    --max-count 100 --log-dir "$folder/logs"
succeeds "$page" "$folder/frame" "$folder/frame.html"
# What a larger run has left behind stays out; a rank was killed, so mpirun has killed the others.
cp -r "$folder/bytes-trace" "$folder/killed"
HVDLAB_TRACE=$folder/killed run common/scripts/mpi.sh run 4 "$folder/bytes" tree
succeeds "$page" "$folder/killed" "$folder/killed.html"
[[ $(cat "$folder/err") == *"page: warning: $folder/killed also has files of another run, which the page leaves out: rank-4.jsonl, rank-5.jsonl" ]] ||
    fail "it is not said that the folder has another run: $(cat "$folder/err")"
# So it is without jobs, as older kits wrote: what is no rank of the run that rank 0 is of, is of another.
cp -r "$folder/killed" "$folder/older"
sed -i -E '1s/"job":"[^"]*","time":[^,]*,"locked_on":"[^"]*",//; s/,"received":[^}]*//' "$folder"/older/*.jsonl
succeeds "$page" "$folder/older" "$folder/older.html"
# Checkpoints: a file gets its name when it is whole.
HVDLAB_TRACE=$folder/saves succeeds common/scripts/mpi.sh run 2 "$build/solution_save" --data synthetic --epochs 3 --images 256 \
    --checkpoint-dir "$folder/saved" --log-dir "$folder/logs"
succeeds "$page" "$folder/saves" "$folder/saves.html"

# More calls than the page keeps: 25,000 messages of 8 bytes from rank 0 to rank 1.
mkdir "$folder/many"
for rank in 0 1; do
    awk -v rank=$rank 'BEGIN {
        printf "{\"event\":\"start\",\"t\":1,\"program\":\"many\",\"job\":\"j\",\"time\":1,\"locked_on\":\"\",\"pid\":1,\"rank\":%d,\"size\":2,\"node\":0}\n", rank
        ends = rank ? ",\"received\":8,\"source\":0,\"tag\":5" : ""
        begins = rank ? "\"to\":null,\"bytes\":null,\"from\":0,\"from_tag\":5" : "\"to\":1,\"to_tag\":5,\"bytes\":8,\"from\":null"
        for (i = 1; i <= 25000; i++)
            printf "{\"event\":\"message_begin\",\"t\":%d,\"function\":\"MPI_X\",\"name\":\"w\",%s}\n{\"event\":\"message_end\",\"t\":%d.5,\"function\":\"MPI_X\",\"request\":0%s}\n", i, begins, i, ends
        print "{\"event\":\"end\",\"t\":30000,\"status\":0,\"lost\":0}" }' >"$folder/many/rank-$rank.jsonl"
done
succeeds "$page" "$folder/many" "$folder/many.html"

# Parameter servers: a worker waits until the server answers its pull.
HVDLAB_TRACE=$folder/servers succeeds common/scripts/servers.sh 1:0,100,0 3 "$build/solution_bounded" --data synthetic --epochs 1 \
    --images 128 --staleness 0
succeeds "$page" "$folder/servers" "$folder/servers.html"

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
cp -r "$folder/trace" "$folder/hung" # a run that has ended: another one is waited for
"$page" --live "$folder/hung" "$folder/live.html" >"$folder/live.out" 2>"$folder/live.err" &
live=$!
sleep 2
grep -qF "$folder/live.html: open it in a browser. It follows the next run in $folder/hung" "$folder/live.out" ||
    fail "make live does not say what to open: $(cat "$folder/live.out")"
cp "$folder/live.html" "$folder/before.html"
HVDLAB_TRACE=$folder/hung HVD_STALL_SECONDS=0 common/scripts/mpi.sh run 4 "$folder/hangs" >/dev/null 2>&1 &
job=$!
sleep 3

cat >"$folder/look.py" <<'PYTHON'
import json, os, signal, sys, time
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
def rows(): # in one call: the page may draw it again at any time
    return browser.execute_script("return [...document.querySelectorAll('#table tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")
def waiting():
    return sorted(browser.execute_script("return [...document.querySelectorAll('#ranks path[data-wait]')].map(path => path.dataset.wait)"))
def complaints():
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE" and "favicon" not in entry["message"]]
try:
    browser.get("file://" + folder + "/whole.html")
    assert browser.find_element(By.ID, "title").text == "solution_06 on 4 ranks"
    shares = browser.execute_script("return run.ranks.map(r => shares(r, run.end))")
    # After the last rank has come to MPI_Finalize, it is no waiting and moves nothing.
    finalize = [next(json.loads(line)["t"] for line in open(f"{folder}/trace/rank-{rank}.jsonl") if '"MPI_Finalize"' in line) for rank in range(4)]
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
                end = max(finalize) if e.get("function") == "MPI_Finalize" else e["t"]
                inside += end - begin if depth == 0 else 0
        share = shares[rank]
        assert abs(share["wait"] + share["move"] - inside) < 1e-6, (share, inside)
        assert abs(share["wait"] + share["move"] + share["compute"] - (events[-1]["t"] - events[0]["t"])) < 1e-6, share
    # The last of the ranks to come to a call waits least.
    assert min(s["wait"] for s in shares) < max(s["wait"] for s in shares)
    # The axis of time ends where the slider does, and the frame of a host is as wide as the strips.
    ticks = browser.execute_script("return [...document.querySelectorAll('#strips .tick')].map(t => [t.textContent, Number(t.getAttribute('x'))])")
    line = float(browser.execute_script("return document.querySelector('#strips line').getAttribute('x1')"))
    assert ticks[-1] == [browser.find_element(By.ID, "moment").text, line], (ticks, line)
    widths = browser.execute_script("return ['#ranks rect', '#strips svg'].map(e => document.querySelector(e).getBoundingClientRect().width)")
    assert widths[0] > 0.97 * widths[1], widths
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
        arrows = waiting()
        assert f"{stage}-{1 - stage}" in arrows, (stage, arrows)
    assert not complaints(), complaints()

    # Bytes: D = 48,000 of each array; six ranks.
    def bytes_of_rows():
        return browser.execute_script("return [...document.querySelectorAll('#table tbody tr')].map(row => [...row.cells].slice(-3).map(cell => parseInt(cell.title)))")
    browser.get("file://" + folder + "/bytes.html")
    D, N = 48000, 6
    sides = [sum(child < N for child in (2 * r + 1, 2 * r + 2)) + (r > 0) for r in range(N)] # of a tree: messages up and down
    expected = [[((N - 1 if r == 0 else 1) + sides[r]) * D + 2 * (N - 1) * D // N] * 2 + [2 * D + D * (r in (1, 2))] for r in range(N)]
    assert bytes_of_rows() == expected, (bytes_of_rows(), expected)
    # A call waits until its partners have come: the other side of a message (those behind the first, for MPI_Waitall
    # two), in MPI_Finalize all ranks, and in a communicator without a name its members.
    calls = browser.execute_script("return run.ranks.map(r => r.calls.map(c => [c[FUNCTION], c[BEGIN], c[END], c.ready, c[FROM], c[TO], c[CHANNEL]]))")
    def of(rank, function, **place):
        return [c for c in calls[rank] if c[0] == function and all(c[{"source": 4, "to": 5}[key]] == value for key, value in place.items())]
    def waits_for(call, begins):
        assert abs(call[3] - max([call[1]] + [b for b in begins if b <= call[2]])) < 1e-6, (call, begins)
    for rank in range(N):
        left, right = (rank - 1) % N, (rank + 1) % N
        if rank > 0:
            waits_for(of(rank, "MPI_Recv", source=0)[0], [of(0, "MPI_Send", to=rank)[0][1]])
        for hop, call in enumerate(of(rank, "MPI_Waitall")):
            waits_for(call, [of(left, "MPI_Isend")[hop][1], of(right, "MPI_Irecv")[hop][1]])
        waits_for(of(rank, "MPI_Finalize")[0], [of(other, "MPI_Finalize")[0][1] for other in range(N)])
        for which, members in (-1, range(rank % 2, N, 2)), (-2, range(rank // 2 * 2, rank // 2 * 2 + 2)), (-3, range(rank % 2, N, 2)):
            waits_for(of(rank, "MPI_Barrier")[which], [of(other, "MPI_Barrier")[which][1] for other in members])
    assert any(call[3] - call[1] > 0.1 for rank in range(N - 1) for call in of(rank, "MPI_Recv")), calls
    ends = [of(rank, "MPI_Finalize")[0][1] for rank in range(N)]
    if max(ends[:5]) < ends[5]: # which sleeps before it
        browser.execute_script("moment = arguments[0]; draw()", (max(ends[:5]) + ends[5]) / 2)
        assert [row[3:5] for row in rows()][:5] == [["MPI_Finalize", "rank 5"]] * 5, rows()
    # The messages inside a function of the program's own, once; of a broadcast, what the root gives.
    browser.get("file://" + folder + "/frame.html")
    sent, given = [], []
    for rank in range(3):
        events = [json.loads(line) for line in open(f"{folder}/frame/rank-{rank}.jsonl")]
        assert [e for e in events if e.get("function") == "hvd_use_allreduce"], rank
        sent.append(sum(e["bytes"] for e in events if e["event"] == "message_begin" and e["to"] is not None))
        given.append(sum(e["bytes"] for e in events if e["event"] == "collective_begin" and e["function"].startswith("MPI_") and (e["function"] != "MPI_Bcast" or e["root"] == rank)))
    expected = [[sent[rank], sent[rank - 1], given[rank]] for rank in range(3)]
    assert bytes_of_rows() == expected, (bytes_of_rows(), expected)
    # A run that was killed, in a folder where a larger one has been.
    for name in ("killed", "older"):
        browser.get("file://" + folder + f"/{name}.html")
        assert browser.find_element(By.ID, "title").text == "bytes on 4 ranks", browser.find_element(By.ID, "title").text
        said = browser.find_element(By.ID, "state").text
        assert "Files of another run are left out: rank-4.jsonl, rank-5.jsonl." in said and len(rows()) == 4, said
        assert ("The run has ended, after" in said) == (name == "killed") and "going on" not in said, said
        if name == "killed":
            assert "; rank 0, rank 1, rank 2, rank 3 ended without returning from main or exit(): by a signal" in said, said
            assert rows()[1][3] == "ended in no call" and rows()[0][3:5] == ["ended in MPI_Barrier", "rank 1"], rows()
        else:
            assert "the trace of rank 0, rank 1, rank 2, rank 3 has no end: it goes on, or was killed" in said, said
            assert all(row[-2] == "?" for row in rows()), rows()
    browser.get("file://" + folder + "/many.html")
    assert bytes_of_rows() == [[200000, 0, 0], [0, 200000, 0]], bytes_of_rows()
    assert "only the last calls of each rank are drawn" in browser.find_element(By.ID, "state").text
    assert browser.execute_script("return [...document.querySelectorAll('#more td')].map(c => c.title || c.textContent)") == ["0 to 1", "200000 bytes"]
    browser.get("file://" + folder + "/servers.html")
    shares = browser.execute_script("return run.ranks.map(r => shares(r, run.end))")
    events = [[json.loads(line) for line in open(f"{folder}/servers/rank-{rank}.jsonl")] for rank in range(4)]
    for worker in range(3):
        asked, got = ([e["t"] for e in events[worker] if e["event"] == name] for name in ("ps_pull", "ps_pulled"))
        answered = [e["t"] for e in events[3] if e["event"] == "ps_sent" and e["worker"] == worker]
        waited = sum(end - begin for begin, end in zip(asked, answered))
        moved = sum(end - begin for begin, end in zip(answered, got))
        assert len(asked) == len(answered) == len(got) > 0, (asked, answered, got)
        assert abs(shares[worker]["wait"] - waited) < 1e-6 and abs(shares[worker]["move"] - moved) < 1e-6, (worker, shares, waited, moved)
    browser.get("file://" + folder + "/saves.html")
    files = browser.execute_script("return checkpoints(run.end).map(c => c.path)")
    there = sorted(os.path.join(folder, "saved", name) for name in os.listdir(folder + "/saved"))
    assert files and sorted(files) == there, (files, there)
    assert [row.text for row in browser.find_elements(By.CSS_SELECTOR, "#checkpoints tbody td:first-child")] == files
    assert not complaints(), complaints()

    browser.get("file://" + folder + "/before.html")
    assert browser.find_element(By.ID, "title").text == "No run yet" and not rows(), browser.find_element(By.ID, "title").text
    assert browser.find_element(By.ID, "state").text == f"No run has begun in {folder}/hung yet."
    browser.get("file://" + folder + "/live.html")
    for _ in range(100):
        arrows = waiting()
        if arrows == ["0-2", "1-2", "3-2"]:
            break
        time.sleep(0.1)
    assert arrows == ["0-2", "1-2", "3-2"], arrows
    table = rows()
    assert browser.find_element(By.ID, "state").text.startswith("The run is going on, since ")
    assert table[2][3] == "in no call" and table[0][3] == "hvd_allreduce" and table[0][4] == "rank 2", table
    # The view survives a reload of the data.
    browser.execute_script("const s = document.getElementById('slider'); s.value = 500; s.dispatchEvent(new Event('input')); window.scrollTo(0, 120)")
    at = browser.execute_script("return [moment, scrollY, run.end]")
    time.sleep(3)
    later = browser.execute_script("return [moment, scrollY, run.end]")
    assert later[:2] == at[:2], (at, later)
    assert not [c for c in complaints() if "ERR_FILE_NOT_FOUND" not in c["message"]], complaints()
    # Killed: the page says that the run has ended, and that of every rank, when it has loaded its data once more.
    os.kill(int(sys.argv[2]), signal.SIGTERM)
    for _ in range(100):
        said = browser.find_element(By.ID, "state").text
        if said.startswith("The run has ended"):
            break
        time.sleep(0.1)
    assert "; rank 0, rank 1, rank 2, rank 3 ended without" in said, said
    browser.execute_script("moment = null; draw()")
    assert rows()[0][3:5] == ["ended in hvd_allreduce", "rank 2"] and rows()[2][3] == "ended in no call", rows()
    if len(sys.argv) > 3:
        for name in ("whole", "changed", "live", "bytes", "killed", "saves"):
            browser.get("file://" + folder + "/" + name + ".html")
            time.sleep(1.5)
            browser.save_screenshot(f"{sys.argv[3]}/{name}.png")
finally:
    browser.quit()
PYTHON
succeeds /usr/bin/python3 "$folder/look.py" "$folder" "$job" ${SCREENSHOTS:+"$SCREENSHOTS"}
kill $job 2>/dev/null
wait $job 2>/dev/null
# It ends with the run.
for _ in {1..100}; do
    kill -0 $live 2>/dev/null || break
    sleep 0.1
done
kill $live 2>/dev/null && fail "make live has not ended with the run"
wait $live
[[ $(tail -n 1 "$folder/live.out") == "The run has ended; the page shows all of it." ]] || fail "make live does not say that the run has ended: $(cat "$folder/live.out")"
[[ ! -s $folder/live.err ]] || fail "page --live complains: $(cat "$folder/live.err")"
conclude
