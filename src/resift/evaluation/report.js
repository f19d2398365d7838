document.querySelectorAll("select[data-shows]").forEach(function (select) {
  var parts = document.querySelectorAll("[data-part=" + select.dataset.shows + "]");
  function show() {
    parts.forEach(function (part) { part.hidden = part.dataset.name !== select.value; });
  }
  select.hidden = false;
  select.addEventListener("change", show);
  show();
});
