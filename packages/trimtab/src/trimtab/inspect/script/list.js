// Lists and texts of any length: only what is near the screen is in the page.

const PAGE_ROWS = 12;
const PREVIEW_CHARS = 1600;
const PREVIEW_LINES = 14;
const LONG_TEXT_CHARS = 20000;
const PIECE_CHARS = 4000;

class LongList {
  // `makeRow` returns an element. Its property `ready` may promise that its content is there.
  constructor(holder, total, rowHeight, makeRow) {
    this.makeRow = makeRow;
    this.total = total;
    this.pages = [];
    const observer = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) this.fill(entry.target);
        else this.empty(entry.target);
      }
    }, { rootMargin: "800px 0px" });
    for (let start = 0; start < total; start += PAGE_ROWS) {
      const page = element("div", { class: "rows", role: "presentation" });
      page.start = start;
      page.style.minHeight = Math.min(PAGE_ROWS, total - start) * rowHeight + "px";
      this.pages.push(page);
      observer.observe(page);
    }
    holder.replaceChildren(...this.pages);
    holder.longList = this;
    this.ready = total ? this.fill(this.pages[0]) : Promise.resolve();
  }

  // Returns a promise that the content of its rows is there.
  fill(page) {
    if (page.childElementCount) return undefined;
    page.style.minHeight = "";
    const many = Math.min(PAGE_ROWS, this.total - page.start);
    const rows = Array.from({ length: many }, (_, place) => this.makeRow(page.start + place));
    page.append(...rows);
    return Promise.all(rows.map((row) => row.ready));
  }

  empty(page) {
    if (!page.childElementCount || page === this.pages[0] || page.contains(document.activeElement)) return;
    const height = page.offsetHeight;
    if (!height) return; // in a view that is not shown
    page.style.minHeight = height + "px";
    page.replaceChildren();
  }

  async show(index) {
    const page = this.pages[Math.floor(index / PAGE_ROWS)];
    await this.fill(page);
    const row = page.children[index % PAGE_ROWS];
    row.scrollIntoView({ block: "center" });
    row.focus({ preventScroll: true });
  }
}

// A text of any length: its beginning, or in pieces that are drawn when they come near the screen.
// `showAll` shows the rest.
function showText(holder, text, { whole = false, showAll = () => showText(holder, text, { whole: true }) } = {}) {
  const end = whole ? text.length : findPreviewEnd(text);
  if (end === text.length && end > LONG_TEXT_CHARS) return showPieces(holder, text);
  holder.replaceChildren(element("pre", {}, text.slice(0, end)));
  if (end < text.length) holder.append(element("button", { class: "link", click: showAll }, "Show all"));
  return undefined;
}

function findPreviewEnd(text) {
  const start = text.slice(0, PREVIEW_CHARS + 1);
  const lines = start.split("\n");
  if (start === text && text.length <= PREVIEW_CHARS && lines.length <= PREVIEW_LINES + 4) return text.length;
  const end = lines.slice(0, PREVIEW_LINES).join("\n").length;
  const line = start.lastIndexOf("\n", end - 1);
  return lines.length <= PREVIEW_LINES && line > end / 2 ? line : Math.min(end, PREVIEW_CHARS);
}

function showPieces(holder, text) {
  const pieces = [];
  for (let start = 0; start < text.length;) {
    let end = Math.min(text.length, start + PIECE_CHARS);
    const line = end < text.length ? text.lastIndexOf("\n", end) : -1;
    if (line > start) end = line + 1;
    pieces.push(text.slice(start, end));
    start = end;
  }
  const box = element("div", { class: "long", tabindex: 0, role: "group", "aria-label": "the whole text" });
  holder.replaceChildren(box);
  new LongList(box, pieces.length, 900, (index) => element("pre", {}, pieces[index].replace(/\n$/, "")));
}
