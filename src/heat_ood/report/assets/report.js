"use strict";
(() => {
  document.documentElement.classList.add("scripted");

  const number = (cell) => (cell.dataset.sort === undefined ? cell.textContent.trim() : Number(cell.dataset.sort));

  function compare(a, b, sign) {
    if (typeof a === "string") return sign * a.localeCompare(b);
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return sign * (a - b);
  }

  function sort(table, head, column) {
    const first = head.dataset.first || "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    for (const th of table.tHead.querySelectorAll("th[aria-sort]")) th.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    for (const body of table.tBodies) {
      const rows = [...body.rows].map((row) => [number(row.cells[column]), row]);
      rows.sort((a, b) => compare(a[0], b[0], sign));
      body.append(...rows.map((row) => row[1]));
    }
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      if (!head.hasAttribute("aria-sort")) head.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => sort(table, head, column));
    });
  }

  for (const box of document.querySelectorAll(".box")) {
    const mark = () => {
      const left = box.scrollWidth - box.clientWidth;
      box.classList.toggle("wide", left > 1);
      box.classList.toggle("end", left > 1 && box.scrollLeft >= left - 1);
    };
    box.addEventListener("scroll", mark, { passive: true });
    new ResizeObserver(mark).observe(box);
  }

  addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });

  let made = 0;
  for (const group of document.querySelectorAll(".switch")) {
    const panes = [...group.querySelectorAll(":scope > .pane")];
    if (panes.length < 2) continue;
    const tabs = document.createElement("div");
    tabs.className = "tabs";
    tabs.setAttribute("role", "tablist");
    tabs.setAttribute("aria-label", group.dataset.label || "");
    const buttons = panes.map((pane) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = pane.dataset.title;
      button.setAttribute("role", "tab");
      pane.id = pane.id || `pane-${made++}`;
      button.id = `${pane.id}-tab`;
      button.setAttribute("aria-controls", pane.id);
      pane.setAttribute("role", "tabpanel");
      pane.setAttribute("aria-labelledby", button.id);
      return button;
    });
    const show = (chosen) => {
      panes.forEach((pane, i) => { pane.hidden = i !== chosen; });
      buttons.forEach((button, i) => {
        button.setAttribute("aria-selected", String(i === chosen));
        button.tabIndex = i === chosen ? 0 : -1;
      });
    };
    buttons.forEach((button, i) => {
      button.addEventListener("click", () => show(i));
      button.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const next = (i + step + buttons.length) % buttons.length;
        show(next);
        buttons[next].focus();
      });
    });
    tabs.append(...buttons);
    group.prepend(tabs);
    show(0);
  }
})();
