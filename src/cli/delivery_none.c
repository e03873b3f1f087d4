// Deliveries in a build without libcurl: see delivery.h.
#include "cli/delivery.h"

#include "base/errors.h"

#include <assert.h>

int deliveries_open(const struct delivery_options *o, struct deliveries **out) {
    (void)o;
    (void)out;
    return error_set(MR_EINVAL, "this build has no HTTP for workers: use the Debian package, or "
                                "build with libcurl4-openssl-dev");
}

void deliveries_close(struct deliveries *all) {
    (void)all;
}

int delivery_post(struct deliveries *all, const mr_job *job, struct delivery_result *out) {
    (void)all;
    (void)job;
    (void)out;
    assert(!"there are no deliveries");
    return MR_EINVAL;
}

void delivery_result_finish(struct delivery_result *r) {
    (void)r;
}

void delivery_stop_any(struct deliveries *all, const mr_job *job) {
    (void)all;
    (void)job;
}

void deliveries_stop_any(struct deliveries *all) {
    (void)all;
}
