(function () {
  "use strict";
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const specs = JSON.parse(document.getElementById("charts").textContent);
  // The colours of the page, so that the charts follow it when the reader's system changes.
  function ink() {
    const style = getComputedStyle(document.documentElement);
    const take = (name) => style.getPropertyValue(name).trim();
    const look = { "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font.color": take("--ink") };
    for (const axis of ["xaxis", "yaxis"]) {
      look[axis + ".gridcolor"] = take("--line");
      look[axis + ".linecolor"] = take("--soft");
    }
    look["hoverlabel.bgcolor"] = take("--card");
    look["hoverlabel.font.color"] = take("--ink");
    look["modebar.color"] = take("--soft");
    look["modebar.activecolor"] = take("--ink");
    look["modebar.bgcolor"] = "rgba(0,0,0,0)";
    return look;
  }
  // A legend takes two columns where there is room for them, else one; the box is as high as its legend needs.
  function sized(box, spec) {
    const room = spec.room, columns = box.clientWidth < room.narrow ? 1 : 2;
    const below = room.title + room.entry * Math.ceil(room.entries / columns) + room.rest;
    box.style.height = (room.plot + room.top + below) + "px";
    return { "margin.b": below, "height": room.plot + room.top + below };
  }
  const boxes = specs.map((spec) => {
    const box = document.getElementById(spec.id);
    const options = { responsive: true, displaylogo: false, scrollZoom: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
    Plotly.newPlot(box, spec.data, spec.layout, options).then(() => Plotly.relayout(box, { ...ink(), ...sized(box, spec) }));
    return box;
  });
  window.addEventListener("resize", () => boxes.forEach((box, k) => Plotly.relayout(box, sized(box, specs[k]))));
  dark.addEventListener("change", () => boxes.forEach((box) => Plotly.relayout(box, ink())));
})();
