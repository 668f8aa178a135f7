(() => {
  "use strict";
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const plots = [...document.querySelectorAll(".plot")];
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const config = { displayModeBar: false, responsive: false, doubleClick: "reset", showTips: false };

  const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
  /* Names that begin with @ are colours of the page's scheme. */
  const coloured = (value) => {
    if (value === "@heat") return [[0, colour("heat0")], [0.5, colour("heat1")], [1, colour("heat2")]];
    if (typeof value === "string") return value[0] === "@" ? colour(value.slice(1)) : value;
    if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map(coloured);
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v)]));
    return value;
  };
  const axis = (own) => ({
    gridcolor: colour("grid"), linecolor: colour("edge"), zerolinecolor: colour("grid"), tickfont: { color: colour("soft"), size: 12 },
    automargin: true, separatethousands: true, fixedrange: coarse, ...own, title: { standoff: 10, font: { color: colour("soft"), size: 13 }, ...(own.title || {}) },
  });
  const laid = (layout, width, height) => {
    const legend = {
      orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)",
      font: { size: width < 480 ? 11 : 12, color: colour("ink") },
    };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", width, height, autosize: false,
      font: { family: getComputedStyle(document.body).fontFamily, color: colour("ink"), size: 13 },
      margin: { l: 56, r: 14, t: 10, b: 48 }, hovermode: "closest", dragmode: coarse ? false : "zoom", bargap: 0.25,
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("edge"), font: { color: colour("ink"), size: 12 }, align: "left" },
      ...layout, legend: { ...legend, ...(layout.legend || {}) }, xaxis: axis(layout.xaxis || {}), yaxis: axis(layout.yaxis || {}),
    };
  };
  const drawn = new Set();
  const draw = (plot, ask) => {
    const figure = coloured(charts[plot.dataset.chart]);
    const width = ask || plot.clientWidth, narrow = width < 480;
    let height = Number(plot.dataset.height);
    if (narrow && figure.layout.showlegend !== false) {
      /* The legend has a line for each name, and marks alone say enough. */
      height += 17 * Math.max(0, figure.data.length - 1);
      figure.data.forEach((trace) => { if (trace.mode === "lines+text") trace.mode = "lines"; });
    }
    plot.style.height = height + "px";
    drawn.add(plot);
    return Plotly.react(plot, figure.data, laid(figure.layout, width, height), config);
  };
  const redraw = (width) => drawn.forEach((plot) => draw(plot, width));

  /* What is seen first is drawn first; the rest when the browser has time, or when it comes into sight. */
  const idle = window.requestIdleCallback || ((work) => setTimeout(work, 30));
  const waiting = new Set(plots);
  const take = (plot) => { if (waiting.delete(plot)) draw(plot); };
  const near = new IntersectionObserver((seen) => seen.forEach((one) => { if (one.isIntersecting) { take(one.target); near.unobserve(one.target); } }), { rootMargin: "300px" });
  plots.forEach((plot) => near.observe(plot));
  const rest = () => {
    const next = waiting.values().next().value;
    if (next) { take(next); idle(rest); } else { root.dataset.drawn = "all"; }
  };
  idle(rest);

  let width = innerWidth, timer;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(() => redraw(), 150);
  });
  dark.addEventListener("change", () => redraw());

  let closed = [];
  addEventListener("beforeprint", () => {
    root.classList.add("printing");
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((one) => { one.open = true; });
    [...waiting].forEach(take);
    drawn.forEach((plot) => draw(plot, plot.closest(".small") ? 330 : 690));
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    closed.forEach((one) => { one.open = false; });
    redraw();
  });

  const told = document.getElementById("copied");
  document.querySelectorAll("button[data-copy]").forEach((button) => {
    button.addEventListener("click", async () => {
      const code = document.getElementById(button.dataset.copy);
      let done = true;
      try { await navigator.clipboard.writeText(code.textContent); } catch {
        const range = document.createRange();
        range.selectNodeContents(code);
        getSelection().removeAllRanges();
        getSelection().addRange(range);
        done = document.execCommand("copy");
      }
      told.textContent = done ? "The command was copied." : "The command is selected: copy it.";
      const label = button.firstChild, before = label.data;
      label.data = done ? "Copied" : "Selected";
      setTimeout(() => { label.data = before; }, 2000);
    });
  });
})();
