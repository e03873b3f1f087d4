// Headers of a delivery: those that the command line gives, and those that describe the job:
//
//     Millrace-Id: 17              the same in every attempt: a receiver can skip a repeat
//     Millrace-Stage: mail
//     Millrace-Key: ann            unless there is none
//     Millrace-Attempt: 1
//     Millrace-Deadline-Ms: 5000   what is left, if there is a deadline
//     Millrace-Meta: …             unless there is none
//     traceparent: 00-…            if the metadata is one, or a JSON object with one; so tracestate
//
// With a key, requests are signed as the Standard Webhooks specification has it: webhook-id,
// webhook-timestamp and webhook-signature, the HMAC-SHA256 of id.timestamp.body in base64.
//
// Key and metadata may be any bytes: all but printable ASCII, and %, are %XX. Pure, but for files
// of headers.
#ifndef CLI_DELIVERY_HEADERS_H
#define CLI_DELIVERY_HEADERS_H

#include "millrace.h"

#include <stddef.h>
#include <stdint.h>

// Calls `each` with every line "NAME: VALUE" that an option --header stands for: itself, or the
// lines of a file (@FILE). Returns what `each` has, if that is negative. MR_EINVAL: a line is not a
// header, or one that deliveries set themselves; MR_EIO.
int header_option_read(const char *value, int (*each)(const char *line, void *arg), void *arg);

enum { SIGN_KEY_LEAST = 16, SIGN_KEY_MOST = 512 };

struct sign_key {
    uint8_t bytes[SIGN_KEY_MOST];
    size_t size;
};

// Reads the key from a file: its first line, or, if that begins with whsec_, what the rest of it is
// in base64. MR_EINVAL: it is too short or too long, or no base64; MR_EIO.
int sign_key_read(const char *path, struct sign_key *out);

// Calls `each` with the headers that sign the job's body, at this time in seconds. Returns what
// `each` has, if that is negative; MR_EINVAL: this build has no OpenSSL; MR_ENOMEM.
int sign_headers(const struct sign_key *, const mr_job *, int64_t now_s,
                 int (*each)(const char *line, void *arg), void *arg);

// Calls `each` with every header of the job. Returns what `each` has, if that is negative.
int job_headers(const mr_job *, int (*each)(const char *line, void *arg), void *arg);

#endif
