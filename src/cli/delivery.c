// See delivery.h.
#include "cli/delivery.h"

#include "base/errors.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/mem.h"
#include "cli/delivery_headers.h"
#include "cli/output.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { LOOK_MS = 1000 };

struct deliveries {
    CURLM *multi;
    struct curl_slist *headers; // of the command line
    struct sign_key key;        // its size is 0: requests are not signed
    const char *url;            // borrowed
    int64_t timeout_ms;
    pthread_t thread;

    pthread_mutex_t lock; // guards what follows
    struct list all;      // deliveries that are not over
    bool stopped;         // no more begin
    bool closing;
};

struct transfer {
    struct list of_all;
    const mr_job *job;
    CURL *easy;
    struct curl_slist *headers;
    struct delivery_result *result;
    char error[CURL_ERROR_SIZE];
    int64_t timeout_ms;
    bool ends_at_deadline; // rather than after the --timeout
    size_t head_size;
    bool too_large;
    int err; // of keeping the response

    bool added;   // only the thread of the transfers uses it
    bool stop;    // these are guarded by the lock
    bool is_over; // the transfer has ended, and `code` says how
    CURLcode code;
    pthread_cond_t ended;
};

// ---- Verdicts -----------------------------------------------------------------------------------

enum delivery_end delivery_end_of(long status) {
    if (status >= 200 && status <= 299)
        return DELIVERY_DONE;
    if (status == 429 || status == 503)
        return DELIVERY_LATER;
    bool passes = status == 408 || status == 425;
    return status >= 400 && status <= 499 && !passes ? DELIVERY_DEAD : DELIVERY_FAILED;
}

static int64_t later_ms(CURL *easy) {
    curl_off_t seconds = 0;
    if (curl_easy_getinfo(easy, CURLINFO_RETRY_AFTER, &seconds) != CURLE_OK || seconds <= 0)
        return DELIVERY_LATER_MS;
    return seconds < DELIVERY_LATER_MOST_MS / 1000 ? (int64_t)seconds * 1000
                                                   : DELIVERY_LATER_MOST_MS;
}

// "HTTP 500: " and the beginning of what the response says.
static void status_reason(struct delivery_result *r, long status) {
    mr_bytes said = { 0 };
    char plain[DELIVERY_REASON / 2];
    (void)spool_bytes(&r->body, &said); // without it there are no words
    const char *line = said.data, *end = said.size ? memchr(line, '\n', said.size) : NULL;
    said.size = end ? (size_t)(end - line) - (end > line && end[-1] == '\r') : said.size;
    text_plain(plain, sizeof plain, said);
    const char *redirect = status >= 300 && status <= 399 ? " (redirects are not followed)" : "";
    snprintf(r->reason, sizeof r->reason, "HTTP %ld%s%s%s", status, redirect, *plain ? ": " : "",
             plain);
}

static void failure_reason(const struct transfer *d) {
    struct delivery_result *r = d->result;
    if (d->too_large)
        snprintf(r->reason, sizeof r->reason, "the response has more than %d bytes", BODY_MOST);
    else if (d->head_size > DELIVERY_HEAD_MOST)
        snprintf(r->reason, sizeof r->reason, "the headers of the response have more than %d bytes",
                 DELIVERY_HEAD_MOST);
    else if (d->err < 0)
        snprintf(r->reason, sizeof r->reason, "the response cannot be kept: out of room");
    else if (d->code == CURLE_OPERATION_TIMEDOUT)
        snprintf(r->reason, sizeof r->reason, "timed out: no response within %" PRId64 " ms",
                 d->timeout_ms);
    else
        snprintf(r->reason, sizeof r->reason, "no response: %s",
                 d->error[0] ? d->error : curl_easy_strerror(d->code));
}

static void transfer_judge(struct transfer *d) {
    struct delivery_result *r = d->result;
    long status = 0;
    if (d->stop || (d->ends_at_deadline && d->code == CURLE_OPERATION_TIMEDOUT)) {
        r->end = DELIVERY_STOPPED;
        snprintf(r->reason, sizeof r->reason, "stopped");
        return;
    }
    if (d->code != CURLE_OK || curl_easy_getinfo(d->easy, CURLINFO_RESPONSE_CODE, &status) != 0) {
        r->end = DELIVERY_FAILED;
        failure_reason(d);
        return;
    }
    r->end = delivery_end_of(status);
    if (r->end == DELIVERY_LATER)
        r->later_ms = later_ms(d->easy);
    if (r->end != DELIVERY_DONE)
        status_reason(r, status);
}

// ---- A transfer ---------------------------------------------------------------------------------

static size_t on_head(char *data, size_t one, size_t size, void *transfer) {
    struct transfer *d = transfer;
    (void)data;
    d->head_size += one * size;
    return d->head_size <= DELIVERY_HEAD_MOST ? one * size : 0;
}

// Of a response that is no result the beginning is enough; the rest is read, so that the connection
// can be used again.
static size_t on_body(char *data, size_t one, size_t size, void *transfer) {
    struct transfer *d = transfer;
    struct spool *to = &d->result->body;
    long status = 0;
    size *= one;
    (void)curl_easy_getinfo(d->easy, CURLINFO_RESPONSE_CODE, &status);
    bool keeps = delivery_end_of(status) == DELIVERY_DONE || to->size < LAST_WORDS_MOST;
    d->too_large = to->size + size > BODY_MOST;
    if (keeps && !d->too_large)
        d->err = spool_append(to, data, size);
    return d->too_large || d->err < 0 ? 0 : size;
}

static int add_header_line(const char *line, void *list) {
    struct curl_slist **headers = list;
    struct curl_slist *more = curl_slist_append(*headers, line);
    if (!more)
        return error_set(MR_ENOMEM, "no memory for a header");
    *headers = more;
    return 0;
}

static int copy_headers(const struct deliveries *all, struct transfer *d) {
    int err = job_headers(d->job, add_header_line, &d->headers);
    if (err >= 0 && all->key.size)
        err = sign_headers(&all->key, d->job, time(NULL), add_header_line, &d->headers);
    for (struct curl_slist *at = all->headers; err >= 0 && at; at = at->next)
        err = add_header_line(at->data, &d->headers);
    return err;
}

// The deadline ends a request also when the server is silent and cannot stop the job.
static int64_t timeout_of(const struct deliveries *all, struct transfer *d) {
    int64_t left_ms = mr_job_left_ms(d->job), ms = all->timeout_ms;
    d->ends_at_deadline = left_ms != MR_FOREVER && left_ms < ms;
    if (d->ends_at_deadline)
        ms = left_ms + 1; // the millisecond of the deadline has begun already
    return ms < INT32_MAX ? ms : INT32_MAX;
}

static int transfer_begin(const struct deliveries *all, struct transfer *d) {
    mr_bytes body = mr_job_body(d->job);
    int64_t timeout_ms = d->timeout_ms = timeout_of(all, d);
    int64_t connect_ms = timeout_ms < DELIVERY_CONNECT_MS ? timeout_ms : DELIVERY_CONNECT_MS;
    int err = copy_headers(all, d);
    if (err < 0)
        return err;
    CURL *easy = d->easy = curl_easy_init();
    if (!easy)
        return error_set(MR_ENOMEM, "no memory for a request");
    CURLcode code = 0;
    code |= curl_easy_setopt(easy, CURLOPT_URL, all->url);
    code |= curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    code |= curl_easy_setopt(easy, CURLOPT_POST, 1L);
    code |= curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body.size);
    code |= curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body.size ? body.data : "");
    code |= curl_easy_setopt(easy, CURLOPT_HTTPHEADER, d->headers);
    code |= curl_easy_setopt(easy, CURLOPT_USERAGENT, "millrace/" MILLRACE_VERSION);
    code |= curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_head);
    code |= curl_easy_setopt(easy, CURLOPT_HEADERDATA, d);
    code |= curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    code |= curl_easy_setopt(easy, CURLOPT_WRITEDATA, d);
    code |= curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    code |= curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
    code |= curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    code |=
        curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); // a stop does not wait for a name server
    code |= curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, d->error);
    code |= curl_easy_setopt(easy, CURLOPT_PRIVATE, d);
    return code ? error_set(MR_ENOMEM, "no memory for a request") : 0;
}

static void transfer_finish(struct transfer *d) {
    curl_easy_cleanup(d->easy);
    curl_slist_free_all(d->headers);
    pthread_cond_destroy(&d->ended);
}

// ---- The thread of the transfers ----------------------------------------------------------------

// Passes the transfer back to the thread that waits for it. With the lock.
static void transfer_over(struct deliveries *all, struct transfer *d, CURLcode code) {
    if (d->added)
        curl_multi_remove_handle(all->multi, d->easy);
    list_remove(&d->of_all);
    d->code = code;
    d->is_over = true;
    pthread_cond_signal(&d->ended);
}

// Begins what is new, and ends what was stopped. False: all is over for good.
static bool transfers_update(struct deliveries *all) {
    pthread_mutex_lock(&all->lock);
    for (struct list *at = all->all.next, *next; at != &all->all; at = next) {
        struct transfer *d = list_entry(at, struct transfer, of_all);
        next = at->next;
        if (d->stop)
            transfer_over(all, d, CURLE_ABORTED_BY_CALLBACK);
        else if (!d->added && !(d->added = curl_multi_add_handle(all->multi, d->easy) == CURLM_OK))
            transfer_over(all, d, CURLE_OUT_OF_MEMORY);
    }
    bool goes_on = !all->closing;
    pthread_mutex_unlock(&all->lock);
    return goes_on;
}

static void transfers_collect(struct deliveries *all) {
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(all->multi, &left)) != NULL;) {
        char *private = NULL;
        CURLcode code = m->data.result;
        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &private);
        pthread_mutex_lock(&all->lock);
        transfer_over(all, (struct transfer *)private, code);
        pthread_mutex_unlock(&all->lock);
    }
}

static void *transfers_run(void *deliveries) {
    struct deliveries *all = deliveries;
    while (transfers_update(all)) {
        int running;
        (void)curl_multi_perform(all->multi, &running); // a failure is that of its transfer
        transfers_collect(all);
        (void)curl_multi_poll(all->multi, NULL, 0, LOOK_MS, NULL);
    }
    return NULL;
}

// ---- Running and stopping -----------------------------------------------------------------------

int delivery_post(struct deliveries *all, const mr_job *job, struct delivery_result *out) {
    struct delivery_result result = { .end = DELIVERY_FAILED };
    struct transfer d = { .job = job, .result = &result };
    pthread_cond_init(&d.ended, NULL);
    int err = transfer_begin(all, &d);
    if (err < 0) {
        transfer_finish(&d);
        return err;
    }
    pthread_mutex_lock(&all->lock);
    d.stop = all->stopped || mr_job_stopped(job);
    list_append(&all->all, &d.of_all);
    curl_multi_wakeup(all->multi);
    while (!d.is_over)
        pthread_cond_wait(&d.ended, &all->lock);
    pthread_mutex_unlock(&all->lock);
    transfer_judge(&d);
    transfer_finish(&d);
    *out = result;
    return 0;
}

void delivery_result_finish(struct delivery_result *r) {
    spool_finish(&r->body);
}

// `job` NULL: all of them.
static void stop_transfers(struct deliveries *all, const mr_job *job) {
    pthread_mutex_lock(&all->lock);
    for (struct list *at = all->all.next; at != &all->all; at = at->next) {
        struct transfer *d = list_entry(at, struct transfer, of_all);
        d->stop = d->stop || !job || d->job == job;
    }
    all->stopped = all->stopped || !job;
    pthread_mutex_unlock(&all->lock);
    curl_multi_wakeup(all->multi);
}

void delivery_stop_any(struct deliveries *all, const mr_job *job) {
    stop_transfers(all, job);
}

void deliveries_stop_any(struct deliveries *all) {
    stop_transfers(all, NULL);
}

// ---- Opening and closing ------------------------------------------------------------------------

static int url_check(const char *text) {
    CURLU *url = curl_url();
    char *scheme = NULL;
    CURLUcode code = url ? curl_url_set(url, CURLUPART_URL, text, 0) : CURLUE_OUT_OF_MEMORY;
    if (code == CURLUE_OK)
        code = curl_url_get(url, CURLUPART_SCHEME, &scheme, 0);
    char *user = NULL;
    bool has_secret = curl_url_get(url, CURLUPART_USER, &user, 0) == CURLUE_OK;
    curl_free(user);
    bool is_http = scheme && (!strcmp(scheme, "http") || !strcmp(scheme, "https"));
    curl_free(scheme);
    curl_url_cleanup(url);
    if (has_secret)
        return error_set(MR_EINVAL, "other users can see a secret in a URL: use --header @FILE");
    return is_http ? 0
                   : error_set(MR_EINVAL,
                               "'%.200s' is not a URL that begins with http:// or "
                               "https://",
                               text);
}

static int option_headers(struct deliveries *all, const struct delivery_options *o) {
    static const char type[] = "Content-Type: application/octet-stream";
    bool typed = false;
    int err = add_header_line("Expect:", &all->headers); // no request waits for 100 Continue
    for (int i = 0; err >= 0 && i < o->header_count; i++)
        err = header_option_read(o->headers[i], add_header_line, &all->headers);
    for (struct curl_slist *at = all->headers; at; at = at->next)
        typed = typed || curl_strnequal(at->data, type, strcspn(type, " "));
    if (err >= 0 && !typed)
        err = add_header_line(type, &all->headers);
    return err < 0 || !o->sign_key ? err : sign_key_read(o->sign_key, &all->key);
}

// Signals are for other threads, also where this one and those of libcurl are the first ones.
static bool transfers_start(struct deliveries *all) {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int err = pthread_create(&all->thread, NULL, transfers_run, all);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return err == 0;
}

int deliveries_open(const struct delivery_options *o, struct deliveries **out) {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return error_set(MR_EIO, "libcurl cannot be used");
    int err = url_check(o->url);
    struct deliveries *all = err < 0 ? NULL : mem_alloc(sizeof *all);
    if (!all)
        return err < 0 ? err : error_set(MR_ENOMEM, "no memory for requests");
    list_init(&all->all);
    all->url = o->url;
    all->timeout_ms = o->timeout_ms ? o->timeout_ms : DELIVERY_TIMEOUT_MS;
    pthread_mutex_init(&all->lock, NULL);
    err = option_headers(all, o);
    all->multi = err < 0 ? NULL : curl_multi_init();
    if (err >= 0 && (!all->multi || !transfers_start(all)))
        err = error_set(MR_ENOMEM, "no thread can be made for requests");
    if (err >= 0) {
        *out = all;
        return 0;
    }
    curl_multi_cleanup(all->multi);
    curl_slist_free_all(all->headers);
    mem_free(all);
    return err;
}

void deliveries_close(struct deliveries *all) {
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    all->closing = true;
    pthread_mutex_unlock(&all->lock);
    curl_multi_wakeup(all->multi);
    pthread_join(all->thread, NULL);
    curl_multi_cleanup(all->multi);
    curl_slist_free_all(all->headers);
    pthread_mutex_destroy(&all->lock);
    mem_free(all);
    curl_global_cleanup();
}
