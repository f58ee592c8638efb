// Two calls: what came, what changed, what left.

// Pairs the blocks of two calls. A row has `same` blocks, a block that is `gone`, or one that is
// `added`, with the `previous` block of the same part if it changed.
function compareCalls(all, one, other) {
  const keyOf = (number) => all.blocks.seq[number] ? all.blocks.seq[number] + "." + all.blocks.part[number] : "front " + all.blocks.kind[number];
  const first = listBlocks(all, one);
  const second = listBlocks(all, other);
  const before = new Set(first);
  const after = new Set(second);
  const gone = first.filter((number) => !after.has(number));
  const added = second.filter((number) => !before.has(number));
  const goneByKey = Map.groupBy(gone, keyOf);
  const previous = new Map(added.map((number) => [number, goneByKey.get(keyOf(number))?.shift()]));
  const removed = new Set([...goneByKey.values()].flat());
  const rows = [];
  let place = 0;
  const addGone = (end) => {
    for (; place < first.length && first[place] !== end; place += 1) if (removed.has(first[place])) rows.push({ gone: first[place] });
  };
  for (const number of second) {
    if (!before.has(number)) {
      rows.push({ added: number, previous: previous.get(number) });
      continue;
    }
    if (first.indexOf(number, place) >= 0) { addGone(number); place += 1; }
    if (rows.at(-1)?.same) rows.at(-1).same += 1;
    else rows.push({ same: 1 });
  }
  addGone();
  return { rows, gone, added, removed, same: second.length - added.length };
}

async function drawDiff(all, one, other) {
  const { rows, gone, added, removed, same } = compareCalls(all, one, other);
  const changed = gone.length - removed.size;
  const tokens = (numbers) => count(sum(numbers.map((number) => all.blocks.tokens[number])));
  const field = (name, call) => element("label", {}, name + " ", element("input", { type: "number", min: 1, max: columns.seq.length, value: call + 1 }));
  const form = element("form", { class: "pair" }, field("from call", one), field("to call", other), element("button", { class: "button", type: "submit" }, "Compare"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = "diff=" + [...form.querySelectorAll("input")].map((input) => input.value).join(",");
  });
  const list = element("div", { class: "list" });
  const rowList = new LongList(list, rows.length, 140, (index) => {
    const row = rows[index];
    if (row.same) return element("p", { class: "boundary" }, plural(row.same, "block") + " in both");
    if (row.gone !== undefined) return blockRow(all, row.gone, { tone: "gone" });
    if (row.previous === undefined) return blockRow(all, row.added, { tone: "new" });
    return blockRow(all, row.added, { tone: "changed", previous: blockRow(all, row.previous, { tone: "gone" }) });
  });
  await rowList.ready;
  return [
    heading("From call " + count(one + 1) + " to call " + count(other + 1), "", form),
    element("p", { class: "callfacts" }, plural(added.length - changed, "block") + " came, " + plural(changed, "block") + " changed, " +
      plural(removed.size, "block") + " left, " + count(same) + " stayed · " + tokens(added) + " tokens came or changed, " +
      tokens([...removed]) + " left · ", callLink(one), " and ", callLink(other)),
    columns.head[one] === columns.head[other] ? "" : element("p", { class: "why" }, "The system prompt, the tools or the parameters changed as well."),
    columns.lost[other] ? element("ul", { class: "findings" }, describeBreak(other)) : "",
    list,
    added.length || gone.length ? "" : element("p", {}, "Both calls sent the same blocks."),
  ];
}
