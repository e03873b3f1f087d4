// All limits of HTTP.
#ifndef WEB_LIMITS_H
#define WEB_LIMITS_H

enum {
    WEB_HEAD = 16 << 10,       // bytes of a request before its body
    WEB_HEADERS = 64,          // header lines of a request
    WEB_BODY = 32 << 20,       // bytes of a request body that contains a job's body …
    WEB_BODY_LIST = 256 << 10, // … that has a list of leases …
    WEB_BODY_SMALL = 64 << 10, // … and of any other
    WEB_DEPTH = 128,           // nesting of JSON
    WEB_JSON_VALUES = 1 << 20, // values in a JSON body
    WEB_NUMBER = 1024,         // bytes of a number in JSON
    WEB_STEP_BYTES = 16,       // bytes of JSON per step (see server/budget.h)
    WEB_STEP_VALUES = 4,       // values of replies per step
    WEB_QUOTA_TOKENS = 100,    // tokens whose quotas are shown
    WEB_STEP_POINTS = 16,      // points of a history per step
    WEB_TOGETHER = 16 << 10,   // bytes of a body that is copied behind the head of its response
    WEB_WORDS = 1024,          // parameters of a request: ids, policies …
    WEB_NAMES = 64,            // … names of an object …
    WEB_INNER = 10000,         // … and objects in lists with their members: emits, leases
    WEB_VALUES = 3 << 16,      // values of all replies to one request
    WEB_HEAD_MS = 10000,       // from the first byte of a request to the end of its head …
    WEB_BODY_MS = 60000,       // … and of its body
    WEB_IDLE_MS = 60000,       // from a response to the next request
    WEB_LINGER_MS = 2000,      // from a refusal until the unread rest of the request is abandoned
    WEB_CONNECTIONS = 2000,    // in all …
    WEB_CONNECTIONS_OF_ADDRESS = 500, // … from one address …
    WEB_CONNECTIONS_OF_TOKEN = 1000,  // … and of one token
    WEB_STREAMS = 1000,               // of events, in all …
    WEB_STREAMS_OF_TOKEN = 500,       // … and of one token
    WEB_EVENT_MS = 1000,              // from one event to the next
    WEB_SEARCHED = 1000,              // places looked at for new stages with each sample …
    WEB_STAGES_ADDED = 64,            // … and stages found then …
    WEB_STAGES = 256,                 // … of those whose samples are kept …
    WEB_SAMPLES = 600,                // … this many each …
    WEB_SAMPLE_MS = 1000,             // … at least this far apart
};

#endif
