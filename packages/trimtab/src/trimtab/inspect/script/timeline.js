// The timeline: a bar for each call, or for as many calls as there are places.

const timeline = { from: 0, to: 0, selected: 0, bars: [] };
const STRONG_OPERATIONS = new Set(["summarise", "drop", "client", "rewind", "erase"]);

const colours = new Map();

// The colour of the theme as a canvas takes it. An element resolves it.
function colour(name) {
  const key = document.documentElement.dataset.theme + name;
  if (!colours.has(key)) {
    const probe = document.createElement("i");
    probe.style.color = "var(--" + name + ")";
    document.body.append(probe);
    colours.set(key, getComputedStyle(probe).color);
    probe.remove();
  }
  return colours.get(key);
}

function measureBars(left, inner) {
  const calls = timeline.to - timeline.from;
  const many = Math.min(calls, Math.max(1, Math.floor(inner / 3)));
  const width = inner / many;
  return Array.from({ length: many }, (_, index) => {
    const first = timeline.from + Math.floor((index * calls) / many);
    const end = Math.max(first + 1, timeline.from + Math.floor(((index + 1) * calls) / many));
    let largest = first;
    let lost = -1;
    for (let call = first; call < end; call += 1) {
      if (callTokens(call) > callTokens(largest)) largest = call;
      if (columns.lost[call] && (lost < 0 || columns.lost[call] > columns.lost[lost])) lost = call;
    }
    return { first, end, largest, lost, left: left + index * width, width, fill: Math.max(0.8, width - (width > 4 ? 1 : 0)) };
  });
}

function drawTimeline() {
  const canvas = byId("timeline");
  const width = canvas.clientWidth;
  if (!width || !columns.seq.length) return;
  const ratio = window.devicePixelRatio || 1;
  const height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const left = 46;
  const inner = width - left - 8;
  const bars = measureBars(left, inner);
  timeline.bars = bars;
  const top = 20;
  const bottom = Math.round(height * 0.66);
  const cacheTop = bottom + 26;
  const cacheBottom = height - 18;
  const peak = Math.max(1, ...bars.map((bar) => callTokens(bar.largest)));
  const limits = bars.map((bar) => columns.limit[bar.largest]);
  const lows = bars.map((bar) => columns.low[bar.largest]);
  const scale = Math.max(peak, ...[...limits, ...lows].filter((tokens) => tokens <= 1.6 * peak)) * 1.04;
  const y = (tokens) => bottom - ((bottom - top) * tokens) / scale;
  const write = (words, x, place, align) => {
    pen.fillStyle = colour("soft");
    pen.textAlign = align;
    pen.fillText(words, x, place);
  };
  const step = niceStep(scale);
  for (let tokens = 0; tokens <= scale; tokens += step) {
    pen.fillStyle = colour("grid");
    pen.fillRect(left, Math.round(y(tokens)), inner, 1);
    write(short(tokens), left - 6, y(tokens), "right");
  }
  for (const bar of bars) {
    stack(pen, bar, bottom, columns.sections[bar.largest].map((tokens, place) => [bottom - y(tokens), "k" + place]));
  }
  line(pen, bars, limits, y, colour("limit"), [], scale);
  line(pen, bars, lows, y, colour("low"), [5, 4], scale);
  drawMarks(pen, bars, 4);
  write(totals.reported ? "Reported input" : "The log reports no usage", left, cacheTop - 9, "left");
  if (totals.reported) drawCache(pen, bars, cacheTop, cacheBottom);
  const chosen = bars.find((bar) => timeline.selected < bar.end);
  if (chosen && timeline.selected >= chosen.first) {
    pen.strokeStyle = colour("ink");
    pen.strokeRect(chosen.left - 1, top - 2, chosen.fill + 2, cacheBottom - top + 4);
  }
  write("call " + count(timeline.from + 1), left, height - 7, "left");
  if (timeline.to - timeline.from > 1) write("call " + count(timeline.to), left + inner, height - 7, "right");
  byId("out").hidden = timeline.to - timeline.from === columns.seq.length;
}

function niceStep(scale) {
  const rough = scale / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((step) => step * power >= rough) * power;
}

// Parts on top of each other, each with its height and colour.
function stack(pen, bar, bottom, parts) {
  let base = bottom;
  for (const [height, name] of parts) {
    if (height <= 0) continue;
    pen.fillStyle = colour(name);
    pen.fillRect(bar.left, base - height, bar.fill, height);
    base -= height;
  }
}

function line(pen, bars, heights, y, stroke, dash, scale) {
  pen.strokeStyle = stroke;
  pen.lineWidth = 1.5;
  pen.setLineDash(dash);
  pen.beginPath();
  let isDrawing = false;
  bars.forEach((bar, index) => {
    const tokens = heights[index];
    const isShown = tokens && tokens <= scale;
    if (isShown && !isDrawing) pen.moveTo(bar.left, y(tokens));
    isDrawing = isShown;
    if (!isShown) return;
    pen.lineTo(bar.left, y(tokens));
    pen.lineTo(bar.left + bar.width, y(tokens));
  });
  pen.stroke();
  pen.setLineDash([]);
}

function drawMarks(pen, bars, top) {
  let number = lowerBound(session.editSeqs, timeline.from ? columns.seq[timeline.from - 1] : 0);
  for (const bar of bars) {
    const first = number;
    number = lowerBound(session.editSeqs, columns.seq[bar.end - 1] + 1);
    if (number <= first) continue;
    const isStrong = session.edits.slice(first, number).some((edit) => STRONG_OPERATIONS.has(edit.op));
    const middle = bar.left + bar.width / 2;
    pen.fillStyle = colour(isStrong ? "strong" : "mark");
    pen.beginPath();
    pen.moveTo(middle - 4, top);
    pen.lineTo(middle + 4, top);
    pen.lineTo(middle, top + 7);
    pen.fill();
  }
}

function drawCache(pen, bars, top, bottom) {
  const most = Math.max(1, ...bars.map((bar) => columns.input[bar.largest] || 0));
  const tall = (tokens) => ((bottom - top) * tokens) / most;
  for (const bar of bars) {
    const call = bar.lost >= 0 ? bar.lost : bar.largest;
    const [input, read, write] = [columns.input[call], columns.read[call], columns.write[call]];
    if (input !== null) stack(pen, bar, bottom, [[tall(read), "read"], [tall(write), "write"], [tall(input - read - write), "fresh"]]);
    if (bar.lost < 0) continue;
    pen.fillStyle = colour("break");
    pen.fillRect(bar.left + bar.width / 2 - 1, top - 3, 2, totals.breaks.length > 40 ? 9 : bottom - top + 3);
  }
}

function describeCall(call) {
  const edits = listEdits(call);
  return ["Call " + count(call + 1), describeUsage(call),
    edits.length ? edits.slice(0, 3).map(describeEdit).join(", ") + (edits.length > 3 ? " and " + count(edits.length - 3) + " more changes" : "") +
      (edits[0].why ? ": " + explainWhy(edits[0].why) : "") : "",
    columns.lost[call] ? "cache broken: " + explainBreak(call) : ""].filter(Boolean).join(" · ");
}

function selectCall(call) {
  timeline.selected = Math.max(0, Math.min(columns.seq.length - 1, call));
  const canvas = byId("timeline");
  const words = describeCall(timeline.selected);
  canvas.setAttribute("aria-valuenow", timeline.selected + 1);
  canvas.setAttribute("aria-valuetext", words);
  byId("hover").replaceChildren(visibleText(words));
  if (timeline.selected < timeline.from || timeline.selected >= timeline.to) zoom(timeline.selected, timeline.to - timeline.from);
  else drawTimeline();
}

function zoom(middle, calls) {
  const many = Math.max(Math.min(10, columns.seq.length), Math.min(columns.seq.length, Math.round(calls)));
  timeline.from = Math.max(0, Math.min(columns.seq.length - many, Math.round(middle - many / 2)));
  timeline.to = timeline.from + many;
  drawTimeline();
}
const zoomBy = (factor) => zoom(timeline.selected, (timeline.to - timeline.from) * factor);

const openSelected = () => { location.hash = "call=" + (timeline.selected + 1); };

function startTimeline() {
  const canvas = byId("timeline");
  const barAt = (event) => {
    const place = event.clientX - canvas.getBoundingClientRect().left;
    return timeline.bars.find((bar) => place >= bar.left && place < bar.left + bar.width);
  };
  timeline.to = columns.seq.length;
  timeline.selected = columns.seq.length - 1;
  canvas.setAttribute("aria-valuemax", columns.seq.length);
  canvas.addEventListener("mousemove", (event) => {
    const bar = barAt(event);
    if (bar) byId("hover").replaceChildren(visibleText(describeCall(bar.lost >= 0 ? bar.lost : bar.largest)));
  });
  canvas.addEventListener("mouseleave", () => selectCall(timeline.selected));
  canvas.addEventListener("click", (event) => {
    const bar = barAt(event);
    if (!bar) return;
    const many = bar.end - bar.first;
    timeline.selected = bar.lost >= 0 ? bar.lost : bar.largest;
    if (many > 1) zoom(bar.first + many / 2, many * 8);
    else openSelected();
  });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
    if (event.key in steps) selectCall(timeline.selected + steps[event.key]);
    else if (event.key === "Enter" || event.key === " ") openSelected();
    else if (event.key === "+") zoomBy(0.5);
    else if (event.key === "-") zoomBy(2);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  byId("in").addEventListener("click", () => zoomBy(0.5));
  byId("out").addEventListener("click", () => zoomBy(Infinity));
  new ResizeObserver(drawTimeline).observe(canvas);
}

function drawLegend() {
  const item = (mark, words) => element("li", {}, swatch(mark), words);
  const limit = columns.limit.findLast((tokens) => tokens);
  byId("legend").replaceChildren(...[
    session.kinds.map((kind, place) => (columns.sections.some((sections) => sections[place]) ? item("k" + place, SECTION_NAMES[kind]) : "")),
    limit ? item("line limit", limit > 1.6 * totals.peak ? "limit, " + count(limit) + ", far above" : "limit") : "",
    columns.low.some((low) => low) ? item("line low", "low-water mark: " + LOW_WATER) : "",
    session.edits.some((edit) => STRONG_OPERATIONS.has(edit.op)) ? item("triangle", "whole messages were hidden") : "",
    session.edits.some((edit) => !STRONG_OPERATIONS.has(edit.op)) ? item("triangle part", "parts were shortened, or another change") : "",
    totals.reported ? [element("li", {}, "Reported input:"), item("read", "read from the cache"), item("write", "written to the cache"), item("fresh", "fresh")] : "",
    totals.breaks.length ? item("line break", "cache break") : "",
  ].flat().filter(Boolean));
}
