// Sets the theme before anything is painted: a module would come too late, and the page would flash.
try {
  const theme = localStorage.getItem("siltlog.theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be forbidden; the system's theme is shown then.
}
