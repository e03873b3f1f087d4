// Plot: lines over time as an SVG file, panels one above another over the same time.
//
//     struct plot p;
//     plot_begin(&p, "level and throughput", "seconds");
//     plot_panel(&p, "level");
//     plot_line(&p, "probe");
//     plot_point(&p, 0.0, 1); …
//     if (plot_write(&p, "level.svg") < 0) …
//     plot_end(&p);
#ifndef BENCH_PLOT_H
#define BENCH_PLOT_H

#include <stdbool.h>
#include <stddef.h>

enum { PLOT_PANELS = 4, PLOT_LINES = 12, PLOT_TEXT = 80 };

struct plot_point {
    double x, y;
};

struct plot_line {
    char name[PLOT_TEXT];
    int panel;
    bool steps; // holds its value until the next point
    struct plot_point *points;
    size_t count, room;
};

struct plot {
    char title[PLOT_TEXT], x_name[PLOT_TEXT], panels[PLOT_PANELS][PLOT_TEXT];
    int panel_count, line_count;
    struct plot_line lines[PLOT_LINES];
};

void plot_begin(struct plot *, const char *title, const char *x_name);
// Lines that follow belong to this panel; points that follow to that line.
void plot_panel(struct plot *, const char *y_name);
void plot_line(struct plot *, const char *name, bool steps);
void plot_point(struct plot *, double x, double y);
// 0, or -1 with errno. Many points are thinned to what can be seen.
int plot_write(const struct plot *, const char *path);
void plot_end(struct plot *);

#endif
