// Search: every text of the session, chunk by chunk.

const MAX_HITS = 200;

function drawSearch(all, query) {
  const mine = routeNumber;
  const list = element("ol", { class: "hits" });
  const state = element("p", { class: "soft", role: "status" }, "Searching …");
  const wanted = query.toLowerCase();
  searchTexts(all, wanted, list, state, mine);
  return [heading("Search: " + query, ""), state, list];
}

async function searchTexts(all, wanted, list, state, mine) {
  const position = columns.position.at(-1);
  const listed = listListedMessages(position, listUndone(position));
  const headTexts = new Set(session.heads.flatMap((head) => [...head.system, head.params, ...head.tools.map((tool) => tool[2])]));
  const chunks = texts.firstNumbers.length;
  let hits = 0;
  for (let chunk = 0; chunk < chunks; chunk += 1) {
    const loaded = await texts.load(chunk);
    if (mine !== routeNumber) return;
    loaded.forEach((text, place) => {
      const start = text.toLowerCase().indexOf(wanted);
      if (start < 0) return;
      hits += 1;
      if (hits > MAX_HITS) return;
      const end = start + wanted.length;
      const number = texts.firstNumbers[chunk] + place;
      list.append(element("li", {}, describePlace(all, number, headTexts, listed), element("p", { class: "snippet" }, start > 70 ? "…" : "",
        text.slice(Math.max(0, start - 70), start), element("mark", {}, text.slice(start, end)), text.slice(end, end + 110), end + 110 < text.length ? "…" : "")));
    });
    state.textContent = "Searching … " + share(chunk + 1, chunks);
    if (chunk % 8 === 7) await new Promise((resolve) => { setTimeout(resolve, 0); });
  }
  state.textContent = hits ? plural(hits, "text") + (hits > MAX_HITS ? " – the first " + MAX_HITS + " are listed" : "") : "Nothing in this session contains it.";
}

// Where a text was said, and whether the model still saw it in the end.
function describePlace(all, number, headTexts, listed) {
  const place = all.messageByText.get(number);
  if (!place) return element("strong", {}, headTexts.has(number) ? "System prompt or tools" : "Summary");
  const [index, part] = place;
  const seq = all.messages.seq[index];
  const states = listStates(all, seq);
  const last = findLastCall(states);
  const end = columns.seq.length - 1;
  const [words, tone] = !states.length ? (seq > columns.seq.at(-1) ? ["after the last call"] : ["never sent", "warn"])
    : last < end && listed.has(seq) ? ["in the list of the user's words"]
    : last < end ? ["not sent since call " + count(last + 2), "warn"]
    : states.some((state) => state.edit && state.last === last) ? ["shortened in the last call", "warn"] : ["in the last call"];
  return [element("a", { href: "#m" + seq, class: "hit" }, element("strong", {}, "m" + seq + (all.messages.parts[index].length > 1 ? "." + part : "")),
    " " + speaker(all.messages.role[index])), badge(words, tone)];
}
