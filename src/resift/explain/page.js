(function () {
  var parts = document.querySelectorAll("[data-hit]");
  function light(number) {
    parts.forEach(function (part) { part.classList.toggle("on", number !== null && part.dataset.hit === number); });
  }
  parts.forEach(function (part) {
    part.addEventListener("mouseenter", function () { light(part.dataset.hit); });
    part.addEventListener("mouseleave", function () { light(null); });
    part.addEventListener("focusin", function () { light(part.dataset.hit); });
    part.addEventListener("focusout", function () { light(null); });
  });
  function open() {
    var hit = document.getElementById(location.hash.slice(1));
    if (hit && hit.tagName === "DETAILS") { hit.open = true; hit.querySelector("summary").focus(); }
  }
  window.addEventListener("hashchange", open);
  open();
})();
