"""The HTML page around a timeline's data: markup, style and the script that draws on a canvas.

``@TITLE@`` stands for the escaped title and ``@DATA@`` for the JSON.
"""

from __future__ import annotations

PAGE = r"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>
  body { margin: 20px 24px; font: 14px/1.4 system-ui, sans-serif; color: #263238; background: #ffffff; }
  h1 { margin: 0; font-size: 20px; }
  #facts { margin: 2px 0 8px; }
  #legend span { display: inline-block; margin-right: 16px; font-size: 13px; }
  #legend i { display: inline-block; width: 13px; height: 13px; margin-right: 6px; vertical-align: -2px; }
  #help { color: #607d8b; font-size: 12px; margin: 6px 0; }
  #help button { font-size: 12px; margin-left: 8px; }
  canvas { display: block; width: 100%; cursor: grab; touch-action: none; }
  #tip { position: fixed; display: none; pointer-events: none; background: #263238; color: #ffffff;
         padding: 6px 9px; border-radius: 4px; font-size: 12px; white-space: pre; z-index: 1; }
  #stages { columns: 280px; color: #607d8b; font-size: 12px; margin-top: 12px; }
</style>
</head>
<body>
<h1>@TITLE@</h1>
<div id="facts"></div>
<div id="legend"></div>
<div id="help">wheel: zoom at the pointer &middot; drag: move &middot; keys: arrows, +, -, 0
<button id="reset" type="button">whole plan</button></div>
<canvas id="view" tabindex="0"></canvas>
<div id="stages"></div>
<div id="tip"></div>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const plan = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("view"), pen = canvas.getContext("2d");
const tip = document.getElementById("tip");
const NUM_RANKS = plan.rows.length, SPAN = plan.makespan || 1;
const ROW = Math.max(6, Math.min(38, 900 / NUM_RANKS)), GAP = Math.min(5, ROW * 0.15);
const MEMORY_ROW = plan.memory.length ? Math.max(8, Math.min(38, 700 / NUM_RANKS)) : 0;
const TOP = 8, AXIS = 26;
const MEMORY_TOP = TOP + NUM_RANKS * ROW + AXIS + 20;
const HEIGHT = MEMORY_TOP + (MEMORY_ROW ? NUM_RANKS * MEMORY_ROW + AXIS : -20);
const LEFT = 20 + Math.min(220, 7 * Math.max(...plan.ranks.map(name => name.length)));
const RIGHT = MEMORY_ROW ? 130 : 70;
const SCALE = Math.max(1, ...plan.memory.map(curve => Math.max(curve.peak, curve.limit || 0)));
let width = 0, from = 0, to = SPAN, frame = 0, drag = null;

const UNITS = [[1, "s"], [1e3, "ms"], [1e6, "us"], [1e9, "ns"]];
const [FACTOR, UNIT] = UNITS.find(([factor]) => SPAN * factor >= 1) || UNITS[3];
const timeText = seconds => Number((seconds * FACTOR).toPrecision(6)) + " " + UNIT;
const gib = bytes => (bytes / 2 ** 30).toFixed(1);
const percent = share => (100 * share).toFixed(1) + " %";
const xOf = time => LEFT + (time - from) / (to - from) * (width - LEFT - RIGHT);
const timeAt = x => from + (x - LEFT) / (width - LEFT - RIGHT) * (to - from);

// Index of the last entry whose value is at most `limit`, or -1; values rise.
function lastAtMost(list, limit, value) {
  let low = -1, high = list.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (value(list[middle]) <= limit) low = middle; else high = middle - 1;
  }
  return low;
}

function text(x, y, content, colour, align, size) {
  pen.font = size + "px system-ui, sans-serif";
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillText(content, x, y);
}

function draw() {
  frame = 0;
  const ratio = window.devicePixelRatio || 1;
  width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(HEIGHT * ratio);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, HEIGHT);
  pen.save();
  pen.beginPath();
  pen.rect(LEFT, 0, width - LEFT - RIGHT, HEIGHT);
  pen.clip();
  for (let rank = 0; rank < NUM_RANKS; rank++) drawRow(rank);
  drawTransfers();
  plan.memory.forEach(drawMemory);
  pen.restore();
  drawLabels();
  drawAxis(TOP + NUM_RANKS * ROW);
  if (MEMORY_ROW) drawAxis(MEMORY_TOP + NUM_RANKS * MEMORY_ROW);
}

// Boxes narrower than half a pixel are merged: one is drawn per half pixel.
function drawRow(rank) {
  const row = plan.rows[rank], y = TOP + rank * ROW + GAP / 2, height = ROW - GAP;
  pen.fillStyle = "#eceff1";
  pen.fillRect(LEFT, y, width - LEFT - RIGHT, height);
  let drawnTo = -Infinity;
  for (let i = Math.max(0, lastAtMost(row, from, op => op[2])); i < row.length && row[i][2] <= to; i++) {
    const [group, microbatch, start, end] = row[i], x0 = xOf(start), x1 = xOf(end);
    if (x1 - drawnTo < 0.5) continue;
    const box = Math.max(0.5, x1 - x0 - (x1 - x0 > 4 ? 1 : 0));
    pen.fillStyle = plan.groups[group].colour;
    pen.fillRect(x0, y, box, height);
    drawnTo = x1;
    const label = String(microbatch), size = Math.min(12, height * 0.7, (box - 2) / label.length / 0.62);
    if (size >= 7) {
      const middle = (Math.max(x0, LEFT) + Math.min(x1, width - RIGHT)) / 2;
      text(middle, y + height / 2, label, plan.groups[group].text, "center", size);
    }
  }
}

// Only the few that are in sight, so that each can be followed.
function drawTransfers() {
  const seen = plan.transfers.filter(message => message[3] >= from && message[2] <= to);
  if (seen.length > 600) return;
  pen.strokeStyle = "rgba(38, 50, 56, 0.6)";
  pen.lineWidth = 1;
  pen.beginPath();
  for (const [source, destination, start, arrival] of seen) {
    const down = destination > source ? 1 : 0;
    pen.moveTo(xOf(start), TOP + (source + down) * ROW - (down ? GAP / 2 : -GAP / 2));
    pen.lineTo(xOf(arrival), TOP + (destination + 1 - down) * ROW - (down ? -GAP / 2 : GAP / 2));
  }
  pen.stroke();
}

function drawMemory(curve, rank) {
  const floor = MEMORY_TOP + (rank + 1) * MEMORY_ROW - 2, full = MEMORY_ROW - 4;
  const yOf = bytes => floor - bytes / SCALE * full, right = width - RIGHT;
  pen.fillStyle = "#eceff1";
  pen.fillRect(LEFT, floor - full, right - LEFT, full);
  pen.fillStyle = "#b39ddb";
  pen.beginPath();
  pen.moveTo(LEFT, floor);
  const times = curve.times;
  // Of the steps in one pixel the highest counts.
  let x = LEFT, high = 0, level = 0;
  for (let i = Math.max(0, lastAtMost(times, from, time => time)); i < times.length && times[i] <= to; i++) {
    const next = Math.max(LEFT, xOf(times[i]));
    if (next > x + 1) {
      pen.lineTo(x, yOf(high));
      pen.lineTo(x + 1, yOf(level));
      pen.lineTo(next, yOf(level));
      x = next;
      high = 0;
    }
    level = curve.bytes[i];
    high = Math.max(high, level);
  }
  pen.lineTo(x, yOf(high));
  pen.lineTo(x + 1, yOf(level));
  const end = Math.min(right, xOf(SPAN));
  pen.lineTo(end, yOf(level));
  pen.lineTo(end, floor);
  pen.fill();
  pen.fillStyle = "#90a4ae";
  pen.fillRect(LEFT, yOf(curve.state), right - LEFT, floor - yOf(curve.state));
  if (curve.limit !== null) {
    pen.strokeStyle = "#b00020";
    pen.setLineDash([5, 3]);
    pen.beginPath();
    pen.moveTo(LEFT, yOf(curve.limit));
    pen.lineTo(right, yOf(curve.limit));
    pen.stroke();
    pen.setLineDash([]);
  }
}

function drawLabels() {
  const dark = "#263238", every = Math.ceil(11 / ROW), memoryEvery = Math.ceil(11 / MEMORY_ROW);
  for (let rank = 0; rank < NUM_RANKS; rank++) {
    const y = TOP + (rank + 0.5) * ROW, memoryY = MEMORY_TOP + (rank + 0.5) * MEMORY_ROW;
    if (rank % every === 0) {
      text(LEFT - 8, y, plan.ranks[rank], dark, "right", Math.min(12, ROW + 3));
      text(width - RIGHT + 8, y, percent(plan.busy[rank]), dark, "left", Math.min(12, ROW + 3));
    }
    if (plan.memory.length && rank % memoryEvery === 0) {
      const curve = plan.memory[rank], limit = curve.limit === null ? "" : " / " + gib(curve.limit);
      const size = Math.min(12, MEMORY_ROW + 3);
      text(LEFT - 8, memoryY, plan.ranks[rank], dark, "right", size);
      text(width - RIGHT + 8, memoryY, gib(curve.peak) + limit + " GiB", dark, "left", size);
    }
  }
}

function drawAxis(y) {
  const rough = (to - from) * FACTOR / 8, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
  const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  pen.strokeStyle = "#607d8b";
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(LEFT, y + 2);
  pen.lineTo(width - RIGHT, y + 2);
  for (let n = Math.ceil(from * FACTOR / step); n * step <= to * FACTOR; n++) {
    const x = xOf(n * step / FACTOR);
    pen.moveTo(x, y + 2);
    pen.lineTo(x, y + 6);
    text(x, y + 14, (n * step).toFixed(places) + " " + UNIT, "#607d8b", "center", 11);
  }
  pen.stroke();
}

function redraw() { if (!frame) frame = requestAnimationFrame(draw); }

function show(newFrom, newTo) {
  const length = Math.max(SPAN * 1e-7, Math.min(SPAN, newTo - newFrom));
  from = Math.max(0, Math.min(SPAN - length, newFrom));
  to = from + length;
  redraw();
}

function zoom(factor, time) { show(time - (time - from) * factor, time + (to - time) * factor); }

// Text for what lies under a point of the canvas, or "" for nothing.
function describe(x, y) {
  if (x < LEFT || x > width - RIGHT) return "";
  const time = timeAt(x), rank = Math.floor((y - TOP) / ROW);
  if (rank >= 0 && rank < NUM_RANKS) {
    const row = plan.rows[rank], op = row[lastAtMost(row, time, item => item[2])];
    if (!op || time > op[3]) return plan.ranks[rank] + "\nidle at " + timeText(time);
    const group = plan.groups[op[0]], stage = plan.stages[group.stage] || "stage " + group.stage;
    return [
      group.stage + group.kind + op[1] + "   " + plan.ranks[rank],
      stage + ", microbatch " + op[1],
      timeText(op[2]) + " to " + timeText(op[3]) + " (" + timeText(op[3] - op[2]) + ")",
    ].join("\n");
  }
  const memoryRank = Math.floor((y - MEMORY_TOP) / (MEMORY_ROW || 1)), curve = plan.memory[memoryRank];
  if (!curve) return "";
  const at = lastAtMost(curve.times, time, value => value);
  const now = at < 0 ? "" : gib(curve.bytes[at]) + " GiB at " + timeText(time) + "\n";
  const bounds = "peak " + gib(curve.peak) + " GiB, state " + gib(curve.state) + " GiB";
  return plan.ranks[memoryRank] + "\n" + now + bounds;
}

canvas.addEventListener("wheel", event => {
  event.preventDefault();
  zoom(Math.exp(Math.max(-100, Math.min(100, event.deltaY)) * 0.004), timeAt(event.offsetX));
}, { passive: false });
canvas.addEventListener("pointerdown", event => {
  drag = { x: event.clientX, from, to };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointerup", () => { drag = null; });
canvas.addEventListener("pointermove", event => {
  if (drag) {
    const shift = (drag.x - event.clientX) / (width - LEFT - RIGHT) * (drag.to - drag.from);
    show(drag.from + shift, drag.to + shift);
  }
  const content = drag ? "" : describe(event.offsetX, event.offsetY);
  tip.style.display = content ? "block" : "none";
  tip.textContent = content;
  tip.style.left = Math.min(event.clientX + 14, window.innerWidth - 330) + "px";
  tip.style.top = event.clientY + 16 + "px";
});
canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
canvas.addEventListener("dblclick", () => show(0, SPAN));
canvas.addEventListener("keydown", event => {
  const middle = (from + to) / 2, step = (to - from) / 5;
  const act = {
    ArrowLeft: () => show(from - step, to - step),
    ArrowRight: () => show(from + step, to + step),
    "+": () => zoom(0.7, middle),
    "-": () => zoom(1 / 0.7, middle),
    "0": () => show(0, SPAN),
  }[event.key];
  if (act) { event.preventDefault(); act(); }
});
document.getElementById("reset").addEventListener("click", () => show(0, SPAN));
window.addEventListener("resize", redraw);

function add(parent, tag, content) {
  const element = document.createElement(tag);
  element.textContent = content;
  document.getElementById(parent).appendChild(element);
  return element;
}

document.getElementById("facts").textContent = "makespan " + timeText(plan.makespan) + "  |  bubble " +
  percent(plan.bubble) + "  |  " + NUM_RANKS / plan.rowsPerRank + " ranks, " + plan.microbatches + " microbatches";
const memoryLegend = plan.memory.length ? [["#90a4ae", "state"], ["#b39ddb", "activations"]] : [];
if (plan.memory.some(curve => curve.limit !== null)) memoryLegend.push(["#b00020", "limit"]);
for (const [colour, name] of [...plan.legend, ["#eceff1", "idle"], ...memoryLegend]) {
  const item = add("legend", "span", name), box = document.createElement("i");
  box.style.background = colour;
  item.prepend(box);
}
for (const label of plan.stages) add("stages", "div", label);
canvas.style.height = HEIGHT + "px";
draw();
</script>
</body>
</html>
"""
