// Delivery: sends jobs to a URL by POST, as `work --http` does, in the calling thread's time; as
// many at once as there are threads.
//
//     handler ──► delivery_post ──► one thread with all transfers (libcurl) ──► POST URL
//        ▲              │ waits                    ▲
//        └── result ◄───┘                          └── delivery_stop_any, from another thread
//
// One thread has all transfers, so that they share connections, and so that a transfer can be ended
// by another thread than the one that waits for it. Certificates are verified, and redirects are
// not followed: they would send jobs to an address that was not named here.
//
// What a response means:
//
//     2xx         done; its body is the result
//     429, 503    later: after Retry-After, or DELIVERY_LATER_MS; no attempt counts
//     408, 425    failed, as everything below
//     other 4xx   dead: the same request would be refused again
//     otherwise   failed: another status, no response, a response that is too large
//
// Without libcurl there is delivery_none.c.
#ifndef CLI_DELIVERY_H
#define CLI_DELIVERY_H

#include "millrace.h"
#include "work/spool.h"

enum {
    DELIVERY_TIMEOUT_MS = 30000,
    DELIVERY_CONNECT_MS = 10000,
    DELIVERY_LATER_MS = 5000,          // after 429 and 503 without Retry-After
    DELIVERY_LATER_MOST_MS = 86400000, // whatever Retry-After says
    DELIVERY_HEAD_MOST = 256 << 10,    // bytes of the headers of a response
    DELIVERY_REASON = 512,
};

struct deliveries; // the transfers of one worker

struct delivery_options {
    const char *url;
    const char *const *headers; // "NAME: VALUE" of each request, or "@FILE": a line for each
    int header_count;
    const char *sign_key; // the file with the key that signs requests; NULL: none
    int64_t timeout_ms;   // of a request with its response; 0: DELIVERY_TIMEOUT_MS
};

// MR_EINVAL: the URL, a header or the key is wrong, or this build has no libcurl; MR_EIO,
// MR_ENOMEM. Before there are other threads; the one that it makes gets no signals.
int deliveries_open(const struct delivery_options *, struct deliveries **out);

// None may be running. Takes NULL.
void deliveries_close(struct deliveries *);

enum delivery_end {
    DELIVERY_DONE,
    DELIVERY_LATER,
    DELIVERY_DEAD,
    DELIVERY_FAILED,
    DELIVERY_STOPPED, // by delivery_stop_any or deliveries_stop_any
};

struct delivery_result {
    enum delivery_end end;
    int64_t later_ms;             // of DELIVERY_LATER
    char reason[DELIVERY_REASON]; // unless it is done; one line: "HTTP 500: no such table"
    struct spool body;            // of the response; unless it is done, its beginning
};

// What a response with this status means, if it arrived whole.
enum delivery_end delivery_end_of(long status);

// Sends a job and returns when it has the response, or there will be none. 0: `out` has how it
// ended, to be finished with delivery_result_finish. MR_ENOMEM: nothing was sent. Any thread.
int delivery_post(struct deliveries *, const mr_job *, struct delivery_result *out);
void delivery_result_finish(struct delivery_result *);

// Ends the transfer for this job, if any; returns at once. One about to begin for it does not,
// provided the engine has marked the job (mr_job_stopped). Any thread.
void delivery_stop_any(struct deliveries *, const mr_job *);

// Ends all transfers, for good. Any thread.
void deliveries_stop_any(struct deliveries *);

#endif
