// Folds that come with the library: numbers in decimal. Whole numbers stay exact; where a point or
// an exponent comes in, all becomes a double, written with as many digits as it needs. A value that
// can not be folded never can: it dies at once.
#include "flow/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NUMBER = 40 }; // bytes of a number

struct number {
    bool whole;
    int64_t exact;
    double rough;
};

static bool read_whole_number(mr_bytes text, int64_t *out) {
    const char *at = text.data, *end = at + text.size;
    bool minus = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    int64_t n = 0;
    if (at == end)
        return false;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        int digit = minus ? '0' - *at : *at - '0';
        if (__builtin_mul_overflow(n, (int64_t)10, &n) || __builtin_add_overflow(n, digit, &n))
            return false;
    }
    *out = n;
    return true;
}

static bool read_rough(mr_bytes text, double *out) {
    char copy[NUMBER], *end;
    if (text.size == 0 || text.size >= sizeof copy)
        return false;
    memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    if (strspn(copy, "+-.0123456789eE") != text.size || !strpbrk(copy, ".eE"))
        return false;
    *out = strtod(copy, &end);
    return *end == 0 && isfinite(*out);
}

static int read_decimal(mr_bytes text, mr_flow_out *out, struct number *n) {
    n->whole = read_whole_number(text, &n->exact);
    n->rough = n->whole ? (double)n->exact : 0;
    if (n->whole || read_rough(text, &n->rough))
        return 0;
    int shown = text.size < NUMBER ? (int)text.size : NUMBER;
    return out_fail(out, MR_EDEAD, "'%.*s' is not a number of 64 bits", shown,
                    text.size ? (const char *)text.data : "");
}

static int set_number(mr_flow_out *out, const struct number *n) {
    char text[NUMBER];
    int size = 0;
    if (n->whole) {
        uint64_t rest = n->exact < 0 ? -(uint64_t)n->exact : (uint64_t)n->exact;
        char *at = text + sizeof text;
        do
            *--at = (char)('0' + rest % 10);
        while (rest /= 10);
        if (n->exact < 0)
            *--at = '-';
        return mr_flow_set(out, (mr_bytes){ at, (size_t)(text + sizeof text - at) });
    }
    for (int digits = 15; digits <= 17; digits++) { // the fewest that are read as the same number
        size = snprintf(text, sizeof text, "%.*g", digits, n->rough);
        if (strtod(text, NULL) == n->rough)
            break;
    }
    if (!memchr(text, '.', (size_t)size) && !memchr(text, 'e', (size_t)size))
        size += snprintf(text + size, sizeof text - (size_t)size, ".0");
    return mr_flow_set(out, (mr_bytes){ text, (size_t)size });
}

static int read_both(mr_bytes so_far, mr_bytes value, mr_flow_out *out, struct number *a,
                     struct number *b) {
    int err = read_decimal(value, out, b);
    *a = *b;
    return err < 0 || !so_far.size ? err : read_decimal(so_far, out, a);
}

int mr_flow_sum(mr_bytes key, mr_bytes so_far, mr_bytes value, mr_flow_out *out, void *arg) {
    struct number a, b;
    (void)key, (void)arg;
    int err = read_both(so_far, value, out, &a, &b);
    if (err < 0 || !so_far.size)
        return err < 0 ? err : set_number(out, &b);
    bool whole = a.whole && b.whole;
    if (whole && __builtin_add_overflow(a.exact, b.exact, &a.exact))
        return out_fail(out, MR_EDEAD, "the sum does not fit into 64 bits");
    a.whole = whole;
    a.rough += b.rough;
    return set_number(out, &a);
}

static int fold_pick(mr_bytes so_far, mr_bytes value, mr_flow_out *out, int sign) {
    struct number a, b;
    int err = read_both(so_far, value, out, &a, &b);
    if (err < 0)
        return err;
    bool whole = a.whole && b.whole;
    int order = whole ? (b.exact > a.exact) - (b.exact < a.exact)
                      : (b.rough > a.rough) - (b.rough < a.rough);
    return set_number(out, order * sign > 0 ? &b : &a);
}

int mr_flow_min(mr_bytes key, mr_bytes so_far, mr_bytes value, mr_flow_out *out, void *arg) {
    (void)key, (void)arg;
    return fold_pick(so_far, value, out, -1);
}

int mr_flow_max(mr_bytes key, mr_bytes so_far, mr_bytes value, mr_flow_out *out, void *arg) {
    (void)key, (void)arg;
    return fold_pick(so_far, value, out, 1);
}

int mr_flow_count(mr_bytes key, mr_bytes so_far, mr_bytes value, mr_flow_out *out, void *arg) {
    (void)value;
    return mr_flow_sum(key, so_far, mr_str("1"), out, arg);
}

const char *fold_name(mr_flow_fold *fold) {
    static const struct {
        mr_flow_fold *fold;
        const char *name;
    } names[] = { { mr_flow_sum, "sum" },
                  { mr_flow_min, "min" },
                  { mr_flow_max, "max" },
                  { mr_flow_count, "count" } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].fold == fold)
            return names[i].name;
    return "a function";
}
