// Sorts the tables inside <div class="sortable"> when a column heading is clicked or activated by Enter or Space.
document.addEventListener("DOMContentLoaded", () => {
  const compare = new Intl.Collator("en", { numeric: true, sensitivity: "base" }).compare;

  function valueOf(row, column) {
    const text = row.cells[column].textContent.trim();
    const number = /^[+-]?\d/.test(text) ? parseFloat(text) : NaN;
    return { text, number };
  }

  function sort(table, heading, column) {
    const rows = [...table.tBodies[0].rows];
    const filled = rows.filter((row) => row.cells[column].textContent.trim());
    const numeric = filled.length > 0 && filled.every((row) => !Number.isNaN(valueOf(row, column).number));
    const first = numeric ? "descending" : "ascending";
    const other = numeric ? "ascending" : "descending";
    const direction = heading.getAttribute("aria-sort") === first ? other : first;
    const sign = direction === "ascending" ? 1 : -1;
    rows.sort((left, right) => {
      const a = valueOf(left, column);
      const b = valueOf(right, column);
      if (!a.text || !b.text) return Number(!a.text) - Number(!b.text); // empty cells come last
      return sign * (numeric ? a.number - b.number : compare(a.text, b.text));
    });
    for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", direction);
    table.tBodies[0].append(...rows);
  }

  for (const table of document.querySelectorAll(".sortable table")) {
    [...table.tHead.rows[0].cells].forEach((heading, column) => {
      heading.tabIndex = 0;
      heading.addEventListener("click", () => sort(table, heading, column));
      heading.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        sort(table, heading, column);
      });
    });
  }
});
