// Plot: lines and areas over time as an SVG file, panels one above another over the same time.
//
//     struct plot p;
//     plot_begin(&p, "level and throughput", "seconds");
//     plot_panel(&p, "level");
//     plot_line(&p, "probe", PLOT_STEPS);
//     plot_point(&p, 0.0, 1); …
//     if (plot_write(&p, "level.svg") < 0) …
//     plot_end(&p);
#ifndef TOOLS_PLOT_H
#define TOOLS_PLOT_H

#include <stddef.h>

enum { PLOT_PANELS = 4, PLOT_LINES = 12, PLOT_TEXT = 80 };

// How a line is drawn, added up; 0: from point to point.
enum {
    PLOT_STEPS = 1, // holds its value until the next point
    PLOT_AREA = 2,  // filled down to the axis, over the lines named before it
};

struct plot_point {
    double x, y;
};

struct plot_line {
    char name[PLOT_TEXT];
    int panel, style;
    struct plot_point *points;
    size_t count, room;
};

struct plot {
    char title[PLOT_TEXT], x_name[PLOT_TEXT], panels[PLOT_PANELS][PLOT_TEXT];
    int panel_count, line_count;
    struct plot_point reach[PLOT_PANELS];
    struct plot_line lines[PLOT_LINES];
};

void plot_begin(struct plot *, const char *title, const char *x_name);
// Lines that follow belong to this panel; points that follow to that line.
void plot_panel(struct plot *, const char *y_name);
void plot_line(struct plot *, const char *name, int style);
void plot_point(struct plot *, double x, double y);
// The axes of the panel go at least so far, so that plots can be compared.
void plot_reach(struct plot *, double x, double y);
// 0, or -1 with errno. Many points are thinned to what can be seen.
int plot_write(const struct plot *, const char *path);
void plot_end(struct plot *);

#endif
