// The drawing: a scale for each panel, round ticks, a path for each line. Where more points
// than pixels fall together, the lowest and the highest of a pixel are kept, in their order.
#include "tools/plot.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 900, PANEL = 220, LEFT = 70, RIGHT = 20, TOP = 56, GAP = 64 };

static const char *const colours[] = { "#2f7ab8", "#e0895f", "#222222",
                                       "#3c8d53", "#8a5aa3", "#b8860b" };

struct range {
    double low, high;
};

void plot_begin(struct plot *p, const char *title, const char *x_name) {
    *p = (struct plot){ 0 };
    snprintf(p->title, sizeof p->title, "%s", title);
    snprintf(p->x_name, sizeof p->x_name, "%s", x_name);
}

void plot_panel(struct plot *p, const char *y_name) {
    assert(p->panel_count < PLOT_PANELS);
    snprintf(p->panels[p->panel_count++], PLOT_TEXT, "%s", y_name);
}

void plot_line(struct plot *p, const char *name, int style) {
    assert(p->panel_count > 0 && p->line_count < PLOT_LINES);
    struct plot_line *l = &p->lines[p->line_count++];
    snprintf(l->name, sizeof l->name, "%s", name);
    l->panel = p->panel_count - 1;
    l->style = style;
}

void plot_point(struct plot *p, double x, double y) {
    struct plot_line *l = &p->lines[p->line_count - 1];
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->points = realloc(l->points, l->room * sizeof *l->points);
        assert(l->points);
    }
    l->points[l->count++] = (struct plot_point){ x, y };
}

void plot_reach(struct plot *p, double x, double y) {
    p->reach[p->panel_count - 1] = (struct plot_point){ x, y };
}

void plot_end(struct plot *p) {
    for (int i = 0; i < p->line_count; i++)
        free(p->lines[i].points);
    *p = (struct plot){ 0 };
}

// ---- Scales -----------------------------------------------------------------------------------

// A round number near `size`: 1, 2 or 5 times a power of ten.
static double round_step(double size) {
    double power = pow(10, floor(log10(size)));
    double times = size / power;
    return power * (times < 1.5 ? 1 : times < 3.5 ? 2 : times < 7.5 ? 5 : 10);
}

static struct range range_x(const struct plot *p) {
    struct range r = { INFINITY, -INFINITY };
    for (int i = 0; i < p->line_count; i++)
        for (size_t k = 0; k < p->lines[i].count; k++) {
            r.low = fmin(r.low, p->lines[i].points[k].x);
            r.high = fmax(r.high, p->lines[i].points[k].x);
        }
    for (int panel = 0; panel < p->panel_count; panel++)
        r.high = fmax(r.high, p->reach[panel].x);
    if (r.low > 0 && r.low < 0.05 * r.high)
        r.low = 0; // where it all but begins
    return r.high > r.low ? r : (struct range){ 0, 1 };
}

// From zero to a little above the highest.
static struct range range_y(const struct plot *p, int panel) {
    struct range r = { 0, p->reach[panel].y };
    for (int i = 0; i < p->line_count; i++)
        for (size_t k = 0; p->lines[i].panel == panel && k < p->lines[i].count; k++)
            r.high = fmax(r.high, p->lines[i].points[k].y);
    r.high = r.high > 0 ? 1.05 * r.high : 1;
    return r;
}

static double place_x(struct range r, double x) {
    return LEFT + (x - r.low) / (r.high - r.low) * (WIDTH - LEFT - RIGHT);
}

static double place_y(struct range r, int panel, double y) {
    double top = TOP + panel * (PANEL + GAP);
    return top + PANEL - (y - r.low) / (r.high - r.low) * PANEL;
}

// ---- Drawing ----------------------------------------------------------------------------------

static void draw_text(FILE *f, double x, double y, const char *where, const char *text) {
    fprintf(f, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"%s\">", x, y, where);
    for (; *text; text++) {
        if (*text == '<' || *text == '&')
            fprintf(f, "&#%d;", *text);
        else
            fputc(*text, f);
    }
    fprintf(f, "</text>\n");
}

static void draw_axes(FILE *f, const struct plot *p, int panel, struct range x, struct range y) {
    char text[32];
    double bottom = place_y(y, panel, y.low), step = round_step((y.high - y.low) / 5);
    for (double at = 0; at <= y.high; at += step) {
        double py = place_y(y, panel, at);
        fprintf(f, "<path class=\"grid\" d=\"M%d %.1fH%d\"/>\n", LEFT, py, WIDTH - RIGHT);
        snprintf(text, sizeof text, "%g", at);
        draw_text(f, LEFT - 6, py + 4, "end", text);
    }
    step = round_step((x.high - x.low) / 8);
    for (double at = ceil(x.low / step) * step; at <= x.high; at += step) {
        snprintf(text, sizeof text, "%g", at);
        draw_text(f, place_x(x, at), bottom + 16, "middle", text);
    }
    draw_text(f, LEFT, place_y(y, panel, y.high) - 8, "start", p->panels[panel]);
    draw_text(f, WIDTH - RIGHT, bottom + 30, "end", p->x_name);
}

struct pen {
    FILE *file;
    struct range x, y;
    const struct plot_line *line;
    double last_y;
};

static void pen_to(struct pen *pen, size_t point) {
    const struct plot_line *l = pen->line;
    double x = place_x(pen->x, l->points[point].x);
    double y = place_y(pen->y, l->panel, l->points[point].y);
    if (point > 0 && l->style & PLOT_STEPS)
        fprintf(pen->file, "%.1f,%.1f ", x, pen->last_y);
    fprintf(pen->file, "%.1f,%.1f ", x, y);
    pen->last_y = y;
}

// Draws the points that share a pixel with the first: it, the lowest, the highest, the last.
// Returns where the next pixel begins.
static size_t draw_pixel(struct pen *pen, size_t first) {
    const struct plot_line *l = pen->line;
    double right = place_x(pen->x, l->points[first].x) + 1;
    size_t low = first, high = first, end = first;
    for (; end < l->count && place_x(pen->x, l->points[end].x) < right; end++) {
        low = l->points[end].y < l->points[low].y ? end : low;
        high = l->points[end].y > l->points[high].y ? end : high;
    }
    size_t keep[] = { first, low < high ? low : high, low < high ? high : low, end - 1 };
    for (int k = 0; k < 4; k++)
        if (k == 0 || keep[k] != keep[k - 1])
            pen_to(pen, keep[k]);
    return end;
}

static void draw_line(FILE *f, const struct plot_line *l, struct range x, struct range y,
                      const char *colour) {
    if (l->count == 0)
        return;
    struct pen pen = { .file = f, .x = x, .y = y, .line = l };
    double bottom = place_y(y, l->panel, y.low);
    fprintf(f, "<path class=\"%s\" %s=\"%s\" d=\"M", l->style & PLOT_AREA ? "area" : "line",
            l->style & PLOT_AREA ? "fill" : "stroke", colour);
    if (l->style & PLOT_AREA)
        fprintf(f, "%.1f,%.1f ", place_x(x, l->points[0].x), bottom);
    for (size_t i = 0; i < l->count;)
        i = draw_pixel(&pen, i);
    if (l->style & PLOT_AREA)
        fprintf(f, "%.1f,%.1fZ", place_x(x, l->points[l->count - 1].x), bottom);
    fprintf(f, "\"/>\n");
}

// A line's colour is that of lines in its place in other panels.
static const char *colour(const struct plot *p, int line) {
    int place = 0;
    for (int i = 0; i < line; i++)
        place += p->lines[i].panel == p->lines[line].panel;
    return colours[place % (int)(sizeof colours / sizeof *colours)];
}

// Names of a panel's lines, from the right. How wide a letter is, is a guess on the safe side.
static void draw_names(FILE *f, const struct plot *p, int panel, struct range y) {
    double at = WIDTH - RIGHT, top = place_y(y, panel, y.high) - 8;
    for (int i = p->line_count - 1; i >= 0; i--) {
        const struct plot_line *l = &p->lines[i];
        if (l->panel != panel)
            continue;
        at -= 7.5 * (double)strlen(l->name) + 28;
        draw_text(f, at + 15, top, "start", l->name);
        fprintf(f, "<rect x=\"%.0f\" y=\"%.0f\" width=\"10\" height=\"10\" fill=\"%s\"/>\n", at,
                top - 9, colour(p, i));
    }
}

static void draw_panel(FILE *f, const struct plot *p, int panel) {
    struct range x = range_x(p), y = range_y(p, panel);
    fprintf(f, "<g class=\"panel\">\n");
    for (int i = 0; i < p->line_count; i++)
        if (p->lines[i].panel == panel)
            draw_line(f, &p->lines[i], x, y, colour(p, i));
    draw_axes(f, p, panel, x, y);
    draw_names(f, p, panel, y);
    fprintf(f, "</g>\n");
}

int plot_write(const struct plot *p, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f)
        return -1;
    int height = TOP + p->panel_count * (PANEL + GAP);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\">\n"
            "<style>svg{font:12px sans-serif;fill:#333}"
            ".line{fill:none;stroke-width:1.5}"
            ".grid{stroke:#000;stroke-opacity:.12}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, height, WIDTH);
    fprintf(f, "<g font-weight=\"bold\">");
    draw_text(f, LEFT, 22, "start", p->title);
    fprintf(f, "</g>\n");
    for (int panel = 0; panel < p->panel_count; panel++)
        draw_panel(f, p, panel);
    fprintf(f, "</svg>\n");
    int failed = ferror(f);
    return fclose(f) == 0 && !failed ? 0 : -1;
}
