// The drawing: a scale for each panel, round ticks, a polyline for each line. Where more points
// than pixels fall together, the lowest and the highest of a pixel are kept, in their order.
#include "bench/plot.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 900, PANEL = 220, LEFT = 70, RIGHT = 20, TOP = 40, GAP = 40 };

static const char *const colours[] = { "#1b6ca8", "#c8553d", "#3c8d53",
                                       "#8a5aa3", "#b8860b", "#4d4d4d" };

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

void plot_line(struct plot *p, const char *name, bool steps) {
    assert(p->panel_count > 0 && p->line_count < PLOT_LINES);
    struct plot_line *l = &p->lines[p->line_count++];
    snprintf(l->name, sizeof l->name, "%s", name);
    l->panel = p->panel_count - 1;
    l->steps = steps;
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
    return r.high > r.low ? r : (struct range){ 0, 1 };
}

// From zero to a little above the highest.
static struct range range_y(const struct plot *p, int panel) {
    struct range r = { 0, 0 };
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
    draw_text(f, LEFT, place_y(y, panel, y.high) - 6, "start", p->panels[panel]);
    draw_text(f, WIDTH - RIGHT, bottom + 30, "end", p->x_name);
}

static void draw_line(FILE *f, const struct plot_line *l, struct range x, struct range y,
                      const char *colour) {
    fprintf(f, "<polyline stroke=\"%s\" points=\"", colour);
    double last_y = 0;
    for (size_t i = 0; i < l->count;) {
        double px = place_x(x, l->points[i].x);
        size_t low = i, high = i, end = i;
        for (; end < l->count && place_x(x, l->points[end].x) < px + 1; end++) {
            low = l->points[end].y < l->points[low].y ? end : low;
            high = l->points[end].y > l->points[high].y ? end : high;
        }
        size_t keep[] = { i, low < high ? low : high, low < high ? high : low, end - 1 };
        for (int k = 0; k < 4; k++) {
            if (k > 0 && keep[k] == keep[k - 1])
                continue;
            double qx = place_x(x, l->points[keep[k]].x);
            double qy = place_y(y, l->panel, l->points[keep[k]].y);
            if (l->steps && keep[k] > 0)
                fprintf(f, "%.1f,%.1f ", qx, last_y);
            fprintf(f, "%.1f,%.1f ", qx, qy);
            last_y = qy;
        }
        i = end;
    }
    fprintf(f, "\"/>\n");
}

// A line's colour is that of lines in its place in other panels.
static const char *colour(const struct plot *p, int line) {
    int place = 0;
    for (int i = 0; i < line; i++)
        place += p->lines[i].panel == p->lines[line].panel;
    return colours[place % (int)(sizeof colours / sizeof *colours)];
}

// Names of a panel's lines, from the right.
static void draw_names(FILE *f, const struct plot *p, int panel, struct range y) {
    double at = WIDTH - RIGHT;
    for (int i = p->line_count - 1; i >= 0; i--) {
        const struct plot_line *l = &p->lines[i];
        if (l->panel != panel)
            continue;
        fprintf(f, "<g fill=\"%s\">", colour(p, i));
        draw_text(f, at, place_y(y, panel, y.high) - 6, "end", l->name);
        fprintf(f, "</g>\n");
        at -= 7.0 * (double)strlen(l->name) + 14;
    }
}

int plot_write(const struct plot *p, const char *path) {
    FILE *f = fopen(path, "w");
    if (!f)
        return -1;
    int height = TOP + p->panel_count * (PANEL + GAP);
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\">\n"
            "<style>text{font:12px sans-serif}polyline{fill:none;stroke-width:1.5}"
            ".grid{stroke:#ddd}</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            WIDTH, height, WIDTH);
    draw_text(f, WIDTH / 2, 16, "middle", p->title);
    struct range x = range_x(p);
    for (int panel = 0; panel < p->panel_count; panel++) {
        struct range y = range_y(p, panel);
        draw_axes(f, p, panel, x, y);
        draw_names(f, p, panel, y);
        for (int i = 0; i < p->line_count; i++)
            if (p->lines[i].panel == panel)
                draw_line(f, &p->lines[i], x, y, colour(p, i));
    }
    fprintf(f, "</svg>\n");
    return fclose(f) == 0 ? 0 : -1;
}
