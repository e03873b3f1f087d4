// See reload.h.
#include "server/reload.h"

#include "server/notice.h"
#include "server/systemd.h"

#include <sys/resource.h>

static void on_hangup(uv_signal_t *signal, int number) {
    struct reload *k = signal->data;
    (void)number;
    notice(NOTICE_INFO, "SIGHUP: reloading");
    systemd_notify_reloading();
    k->reload(k->arg);
    systemd_notify("READY=1");
}

static void on_watchdog(uv_timer_t *timer) {
    (void)timer;
    systemd_notify("WATCHDOG=1");
}

int reload_init(struct reload *k, uv_loop_t *loop, void (*reload)(void *arg), void *arg) {
    uint64_t alive_ms = systemd_watchdog_ms();
    *k = (struct reload){ .reload = reload, .arg = arg };
    int err = uv_signal_init(loop, &k->hangup);
    if (err == 0)
        err = uv_timer_init(loop, &k->watchdog);
    k->hangup.data = k;
    if (err == 0)
        err = uv_signal_start(&k->hangup, on_hangup, SIGHUP);
    if (err == 0 && alive_ms)
        err = uv_timer_start(&k->watchdog, on_watchdog, 0, alive_ms);
    return err;
}

enum { STORE_DESCRIPTORS = 128 }; // for segments and other files of the store

uint32_t most_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return UINT32_MAX;
    struct rlimit more = { .rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max };
    if (setrlimit(RLIMIT_NOFILE, &more) == 0)
        limit = more;
    rlim_t half = limit.rlim_cur / 2;
    rlim_t most = limit.rlim_cur - (half < STORE_DESCRIPTORS ? half : STORE_DESCRIPTORS);
    return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}
