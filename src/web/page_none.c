// Replaces the page in a build without npm.
#include "web/page.h"

static const uint8_t text[] =
    "<!doctype html>\n<html lang=\"en\">\n<title>Millrace</title>\n<h1>Millrace</h1>\n"
    "<p>This server was built without its page. <code>make</code> in a checkout, with npm "
    "installed, "
    "builds it.\n"
    "<p>Meanwhile: <a href=\"/api/stages\">stages</a>, <a href=\"/api/info\">info</a>, "
    "<a href=\"/metrics\">metrics</a>; <code>docs/http.md</code> lists the rest.\n</html>\n";

const struct page_file page_files[] = {
    { "/", "text/html; charset=utf-8", "none-1", text, sizeof text - 1, false, false },
    { 0 },
};
