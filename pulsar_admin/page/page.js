"use strict";
// Searches the findings, sorts, filters and turns over the table of topics, and copies commands. All else is there without it.
// It makes texts only, never markup: names come from data.
(() => {
  for (const node of document.querySelectorAll(".script")) node.hidden = false;

  const copied = (button) => {
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  };
  const select = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  };
  for (const button of document.querySelectorAll("[data-copies]")) {
    button.addEventListener("click", async () => {
      const node = document.getElementById(button.dataset.copies);
      try {
        await navigator.clipboard.writeText(node.textContent);
        copied(button);
      } catch (_) { // no clipboard for pages of a disk: the selection is copied, or at least selected
        select(node);
        if (document.execCommand("copy")) copied(button);
      }
    });
  }

  const search = document.getElementById("finding-search");
  if (search) {
    search.form.addEventListener("submit", (event) => event.preventDefault());
    search.addEventListener("input", () => {
      const has = (node) => node.textContent.toLowerCase().includes(search.value.toLowerCase());
      for (const item of document.querySelectorAll(".findings > li")) {
        const cases = [...item.querySelectorAll(".cases > li")];
        const found = cases.filter(has); // none where the words are of the whole card: then all cases stay
        item.hidden = !has(item);
        for (const one of cases) one.hidden = found.length > 0 && !found.includes(one);
      }
    });
  }

  const data = JSON.parse(document.getElementById("topics-data").textContent);
  const body = document.querySelector("#topics-table tbody");
  const filter = document.getElementById("topic-filter");
  const withFindings = document.getElementById("with-findings");
  const withBacklog = document.getElementById("with-backlog");
  const previous = document.getElementById("topics-previous");
  const next = document.getElementById("topics-next");
  const count = data.name.length;
  const names = data.name.map((name, index) => data.spaces[data.space[index]] + "/" + name);
  const worsts = data.worst.map((index) => data.worsts[index]);
  const searched = names.map((name, index) => (name + "\n" + worsts[index]).toLowerCase());

  const grouped = (value) => value.toLocaleString("en-US");
  const blank = (value) => (value ? grouped(value) : "");
  const digits = new Intl.NumberFormat("en-US", {maximumSignificantDigits: 3, roundingMode: "halfEven"});
  const size = (value) => {
    for (const unit of ["B", "KiB", "MiB", "GiB"]) {
      if (value < 999.5) return digits.format(value) + " " + unit;
      value /= 1024;
    }
    return (value < 1000 ? digits.format(value) : grouped(Math.round(value))) + " TiB";
  };
  const units = [["d", 86400000], ["h", 3600000], ["m", 60000], ["s", 1000]];
  const age = (value) => {
    const rest = Math.abs(value);
    const at = units.findIndex(([, width]) => rest >= width);
    if (at < 0) return "0s";
    let text = grouped(Math.floor(rest / units[at][1])) + units[at][0];
    const small = units[at + 1];
    const more = small ? Math.floor((rest % units[at][1]) / small[1]) : 0;
    if (more) text += " " + more + small[0];
    return value <= -1000 ? "in " + text : text;
  };
  const columns = [
    [(i) => names[i], (i) => names[i]],
    [(i) => data.entries[i], (i) => grouped(data.entries[i])],
    [(i) => data.size[i], (i) => size(data.size[i])],
    [(i) => data.ledgers[i], (i) => grouped(data.ledgers[i])],
    [(i) => data.subscriptions[i], (i) => grouped(data.subscriptions[i])],
    [(i) => data.backlog[i], (i) => blank(data.backlog[i])],
    [(i) => worsts[i], (i) => worsts[i]],
    [(i) => (data.oldest[i] === null ? -Infinity : data.now - data.oldest[i]),
      (i) => (data.oldest[i] === null ? "" : age(data.now - data.oldest[i]))],
    [(i) => data.findings[i], (i) => blank(data.findings[i])],
  ];

  let order = Array.from({length: count}, (_, index) => index);
  let shown = order;
  let first = 0;

  const row = (index) => {
    const made = document.createElement("tr");
    columns.forEach(([, text], column) => {
      const cell = document.createElement(column ? "td" : "th");
      const isText = column === 0 || column === 6;
      if (!column) cell.scope = "row";
      if (!isText) cell.className = "number";
      const holder = isText ? cell.appendChild(document.createElement("bdi")) : cell;
      holder.textContent = text(index);
      made.appendChild(cell);
    });
    return made;
  };
  const draw = () => {
    const part = shown.slice(first, first + data.rows);
    body.replaceChildren(...part.map(row));
    const range = part.length ? grouped(first + 1) + " to " + grouped(first + part.length) + " of " : "";
    const left = count < data.total ? " (the page has " + grouped(count) + " of " + grouped(data.total) + ")" : "";
    document.getElementById("topics-shown").textContent =
      range + grouped(shown.length) + (shown.length === 1 ? " topic" : " topics") + left;
    previous.disabled = first === 0;
    next.disabled = first + data.rows >= shown.length;
  };
  const refine = () => {
    const wanted = filter.value.toLowerCase();
    shown = order.filter((i) => searched[i].includes(wanted) && (!withFindings.checked || data.findings[i])
      && (!withBacklog.checked || data.backlog[i]));
    first = 0;
    draw();
  };

  document.querySelectorAll("#topics-table thead th").forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const isText = head.dataset.kind === "text";
      const now = head.getAttribute("aria-sort");
      const up = now === "none" ? isText : now === "descending";
      for (const other of head.parentNode.children) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = columns[column][0];
      const compare = isText ? (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0)
        : (a, b) => (value(a) === value(b) ? 0 : value(a) - value(b));
      order = order.slice().sort((a, b) => (up ? compare(a, b) : compare(b, a)) || a - b);
      refine();
    });
  });
  filter.form.addEventListener("submit", (event) => event.preventDefault());
  filter.addEventListener("input", refine);
  withFindings.addEventListener("change", refine);
  withBacklog.addEventListener("change", refine);
  previous.addEventListener("click", () => { first = Math.max(first - data.rows, 0); draw(); });
  next.addEventListener("click", () => { first += data.rows; draw(); });
  draw();
})();
