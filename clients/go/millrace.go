// Package millrace is a client of Millrace: ordered, durable work, exactly once. Jobs with the same
// key run in order and never two at once, in any number of workers.
//
//	c, err := millrace.Open("millrace://127.0.0.1:7411")
//	id, err := c.Push(ctx, "mail", map[string]any{"to": "ann"}, &millrace.PushOptions{Key: "ann"})
//
//	err = c.Work(ctx, []string{"mail"}, func(ctx context.Context, job *millrace.Job) (any, error) {
//		return map[string]any{"ok": true}, nil
//	}, nil)
//
// README.md is a guide. All functions may be called from any goroutine, except those of a Job,
// which belong to its handler.
package millrace

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	neturl "net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	waitPiece   = 10 * time.Second // AWAIT, EPIC and TAKE wait so long at most in one command
	manyItems   = 256              // pushes of PushMany in one command …
	manyBytes   = 1 << 20          // … and their bytes, about
	sourcesMost = 1000             // stages that have free sources
	lanesMost   = 16               // connections that are kept for commands that wait
)

// Client is a client of a server or cluster. It connects when it is first used, and again after
// each loss of a connection.
type Client struct {
	nodes              []string // host:port, or unix:path
	secure             bool     // by TLS
	tls                *tls.Config
	user, secret, name string
	logf               func(string, ...any)
	ctx                context.Context // of the connections
	end                context.CancelFunc
	main               *link
	calls              *link        // has no pushes, since refused ones can spoil a connection
	lanes              chan *link   // free connections for commands that wait
	quietUntil         atomic.Int64 // ns of the clock: losses are not logged again before that

	mu      sync.Mutex          // guards what follows
	sources map[string][]source // by stage: those that no push uses
}

// Option is an option of Open.
type Option func(*Client)

// WithToken gives the secret of a token; otherwise it is in the URL (millrace://name:secret@host)
// or in MILLRACE_TOKEN.
func WithToken(secret string) Option { return func(c *Client) { c.secret = secret } }

// WithTLS gives certificates and the like, for millraces:// URLs.
func WithTLS(config *tls.Config) Option { return func(c *Client) { c.tls = config } }

// WithName gives the name that the server shows; it must be unique for each process.
func WithName(name string) Option { return func(c *Client) { c.name = name } }

// WithLog gives a function for messages: lost connections, failed and dead jobs. By default it is
// log.Printf.
func WithLog(logf func(string, ...any)) Option { return func(c *Client) { c.logf = logf } }

// Open makes a client. The URL is millrace://host:port with commas between several nodes,
// millraces:// for TLS, or unix:PATH for a socket file; "" stands for MILLRACE_URL, or else
// millrace://127.0.0.1:7411.
func Open(url string, options ...Option) (*Client, error) {
	c := &Client{name: fmt.Sprintf("go-%d-%s", os.Getpid(), random(4)), user: "default",
		logf: log.Printf, lanes: make(chan *link, lanesMost), sources: make(map[string][]source)}
	for _, set := range options {
		set(c)
	}
	url = first(url, os.Getenv("MILLRACE_URL"), "millrace://127.0.0.1:7411")
	if err := c.setAddress(url); err != nil {
		return nil, err
	}
	c.secret = first(c.secret, os.Getenv("MILLRACE_TOKEN"))
	c.ctx, c.end = context.WithCancel(context.Background())
	c.main, c.calls = c.link(c.ctx, nil), c.link(c.ctx, nil)
	return c, nil
}

func (c *Client) setAddress(text string) error {
	shown := text[strings.LastIndexByte(text, '@')+1:] // without the secret
	bad := failure(ErrUsage, "%q is not a URL of Millrace: write millrace://127.0.0.1:7411, "+
		"millraces://… for TLS, or unix:PATH for a socket file", shown)
	scheme, rest, _ := strings.Cut(text, ":")
	place, at := strings.TrimPrefix(rest, "//"), 0
	isPath := place == rest // which may have an @
	if !isPath {
		at = strings.LastIndexByte(place, '@') + 1
	}
	token, err := neturl.Parse("//" + place[:at])
	if err != nil {
		return bad
	}
	if secret, both := token.User.Password(); both {
		c.user, c.secret = token.User.Username(), first(c.secret, secret)
	} else {
		c.secret = first(c.secret, token.User.Username())
	}
	place, c.secure = place[at:], scheme == "millraces"
	if scheme == "unix" && (isPath && place != "" || strings.HasPrefix(place, "/")) {
		c.nodes = []string{"unix:" + place}
		return nil
	}
	for _, host := range strings.Split(strings.TrimSuffix(place, "/"), ",") {
		node, err := neturl.Parse("//" + host)
		if err != nil || node.Hostname() == "" || node.Host != host || isPath ||
			scheme != "millrace" && !c.secure {
			return bad
		}
		c.nodes = append(c.nodes, net.JoinHostPort(node.Hostname(), first(node.Port(), "7411")))
	}
	return nil
}

// first returns the first of the texts that is not empty.
func first(texts ...string) (text string) {
	for n := 0; n < len(texts) && text == ""; n++ {
		text = texts[n]
	}
	return text
}

// given is what options point to; nil stands for none.
func given[T any](options *T) (o T) {
	if options != nil {
		o = *options
	}
	return o
}

// Close closes all connections. End the contexts of workers before, and wait for them.
func (c *Client) Close() error {
	c.end()
	return nil
}

// on tries a command on the shared link. One that waits gets another one, since it blocks the others
// of its connection, which is closed if the context has ended, so that the server stops, too.
func (c *Client) on(ctx context.Context, wait time.Duration, l *link,
	once func(*conn) (any, error)) (any, error) {
	if wait == 0 {
		return l.try(ctx, once)
	}
	select {
	case l = <-c.lanes:
	default:
		l = c.link(c.ctx, nil)
	}
	reply, err := l.try(ctx, once)
	if ctx.Err() == nil {
		select {
		case c.lanes <- l:
			return reply, err
		default:
		}
	}
	if l.conn != nil {
		l.conn.close("it is not needed")
	}
	return reply, err
}

// do sends a command that may be sent twice; wait is as for conn.send.
func (c *Client) do(ctx context.Context, wait time.Duration, words ...any) (any, error) {
	return c.on(ctx, wait, c.main, func(conn *conn) (any, error) {
		return conn.send(ctx, wait, nil, words...)
	})
}

// as is a reply of this type; one of another type is zero.
func as[T any](reply any, err error) (T, error) {
	v, _ := reply.(T)
	return v, err
}

// ---- Pushing ------------------------------------------------------------------------------------

// PushOptions are the options of pushes, calls and emits; nil stands for none.
type PushOptions struct {
	Key      string        // jobs of one key run one after another, in order
	Once     string        // a second push of this name and key makes no second job
	Last     bool          // a job of this name that has not started gets this body instead
	Delay    time.Duration // start it after this time
	Deadline time.Duration // start it within this time, and stop it then
	Attempts int           // 0: the policy of the stage
	Meta     any           // for its worker, beside the body; nil: the trace of the context
	Room     time.Duration // wait so long for room instead of failing; negative: for ever
}

// words appends the options as words of the protocol.
func (o *PushOptions) words(ctx context.Context, words ...any) []any {
	add := func(is bool, more ...any) {
		if is {
			words = append(words, more...)
		}
	}
	meta := o.Meta
	if trace := TraceOf(ctx); meta == nil && trace != "" {
		meta = map[string]string{"traceparent": trace}
	}
	add(o.Key != "", "KEY", o.Key)
	add(o.Once != "", "ONCE", o.Once)
	add(o.Last, "LAST")
	add(o.Delay != 0, "DELAY", o.Delay)
	add(o.Deadline != 0, "DEADLINE", o.Deadline)
	add(o.Room != 0, "ROOM", o.Room)
	add(o.Attempts != 0, "ATTEMPTS", o.Attempts)
	add(meta != nil, "META", toWord(meta))
	return words
}

// Push pushes a job and returns its id. After a lost connection it is sent again with its number,
// so that it never makes two jobs. The outcome is unknown if the error is ErrUnreachable,
// ErrStopped, or that of the context.
func (c *Client) Push(ctx context.Context, stage string, body any,
	options *PushOptions) (string, error) {
	o := given(options)
	return as[string](c.numbered(ctx, stage, o.Room, o.words(ctx, "PUSH", stage, toWord(body))))
}

// Item is a job of PushMany.
type Item struct {
	Key  string
	Body any
}

// PushMany pushes jobs, in order, and returns their ids. If one is refused, the ids are those of
// the jobs before it.
func (c *Client) PushMany(ctx context.Context, stage string, items []Item,
	options *PushOptions) ([]string, error) {
	o := given(options)
	head := o.words(ctx, "PUSHMANY", stage)
	ids := make([]string, 0, len(items))
	for len(ids) < len(items) {
		some, size := []any{"ITEMS"}, 0
		for n := len(ids); n < len(items) && len(some) < 2*manyItems && size < manyBytes; n++ {
			body := toWord(items[n].Body)
			data, _ := body.(string)
			some, size = append(some, items[n].Key, body), size+len(data)
		}
		reply, err := c.numbered(ctx, stage, o.Room, head, some...)
		if err != nil {
			return ids, err
		}
		list, _ := reply.([]any)
		for _, id := range list {
			ids = append(ids, fmt.Sprint(id))
		}
		if len(list) == 0 {
			return ids, failure(ErrIncompatible, "PUSHMANY has pushed nothing")
		}
	}
	return ids, nil
}

// source numbers pushes to a stage, so that the server recognises one that is sent again. It is
// used by one push at a time; a number is used up when its push is accepted.
type source struct {
	name   string
	number int64
}

// numbered sends head, a number, and rest.
func (c *Client) numbered(ctx context.Context, stage string, room time.Duration, head []any,
	rest ...any) (any, error) {
	s, sent := c.takeSource(stage), 0
	reply, err := c.on(ctx, room, c.main, func(conn *conn) (any, error) {
		sent++
		words := append(append([]any{}, head...), "SOURCE", s.name, s.number+1)
		return conn.send(ctx, room, nil, append(words, rest...)...)
	})
	switch list, many := reply.([]any); {
	case s.number > 0 && errors.Is(err, ErrGap): // the server knows no push of the source any more
		return c.numbered(ctx, stage, room, head, rest...)
	case err != nil && (ctx.Err() != nil || mayPass(err) || sent > 1):
		return nil, err // what was lost may have used the number: the source is given up
	case many:
		s.number += int64(len(list))
	case err == nil:
		s.number++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sources) >= sourcesMost {
		c.sources = make(map[string][]source)
	}
	c.sources[stage] = append(c.sources[stage], s)
	return reply, err
}

func (c *Client) takeSource(stage string) source {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.sources[stage]
	if len(free) == 0 {
		return source{name: "go-" + random(16)}
	}
	last := len(free) - 1
	c.sources[stage] = free[:last]
	return free[last]
}

// ---- Results ------------------------------------------------------------------------------------

// Call pushes a job, waits for its result and returns it. The deadline of the context is that of
// the job, unless the options have one. When the context ends, the job is cancelled, unless it has
// a Once by which another call still waits for it. It is also cancelled when all that wait for it
// are disconnected. The errors of the job are ErrDead, ErrExpired and ErrCancelled.
func (c *Client) Call(ctx context.Context, stage string, body any,
	options *PushOptions) (Data, error) {
	o := given(options)
	wait, alone := o.Room, o.Once == ""
	if wait == 0 && !alone {
		wait = 1 // it has a connection of its own: to close that leaves the job to other calls
	}
	o.Once = first(o.Once, random(16)) // so that it can be sent again
	if until, limited := ctx.Deadline(); limited && o.Deadline == 0 {
		if o.Deadline = time.Until(until); o.Deadline <= 0 {
			return "", context.DeadlineExceeded
		}
	}
	words := o.words(ctx, "CALL", stage, toWord(body), "LATER")
	for {
		reply, err := c.on(ctx, wait, c.calls, func(conn *conn) (any, error) {
			return c.callOn(ctx, conn, o.Room, words, alone)
		})
		if text, is := reply.(string); is || err != nil {
			return Data(text), err
		}
	}
}

// callOn returns how the job has ended; nil: the connection was lost after the call was accepted.
func (c *Client) callOn(ctx context.Context, conn *conn, room time.Duration, words []any,
	alone bool) (any, error) {
	accepted, end := make(chan string, 1), make(chan any, 1)
	_, err := conn.send(ctx, room, func(reply any) error {
		id, is := reply.(string)
		if is {
			conn.ends[id] = append(conn.ends[id], end)
		}
		accepted <- id
		return nil
	}, words...)
	if err == nil {
		select {
		case outcome := <-end:
			return split(outcome)
		case <-conn.ctx.Done():
			return nil, nil
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if alone && ctx.Err() != nil {
		go func() {
			if id := <-accepted; id != "" {
				c.Cancel(c.ctx, id) // the caller is gone: no error is of use
			}
		}()
	}
	return nil, err
}

// Await waits for a job that was pushed and returns its result; its errors are those of Call.
func (c *Client) Await(ctx context.Context, id string) (Data, error) {
	for {
		reply, err := c.do(ctx, waitPiece, "AWAIT", id, "WAIT", waitPiece)
		if text, is := reply.(string); err != nil || is {
			return Data(text), err
		}
	}
}

// Cancel cancels jobs: those that wait do not start, those that run are asked to stop. It returns
// how many had not ended.
func (c *Client) Cancel(ctx context.Context, ids ...string) (int64, error) {
	words := []any{"CANCEL"}
	for _, id := range ids {
		words = append(words, id)
	}
	return as[int64](c.do(ctx, 0, words...))
}

// Job shows a job: status, attempt, reasons and so on, as docs/protocol.md has it. Numbers are
// int64.
func (c *Client) Job(ctx context.Context, id string) (map[string]any, error) {
	return as[map[string]any](c.do(ctx, 0, "JOB", id))
}

// Command sends any command of docs/protocol.md, once. A reply is string, int64, float64, bool,
// nil, *Error within a list, []any or map[string]any. A command that waits holds up the others of
// this client.
func (c *Client) Command(ctx context.Context, words ...any) (any, error) {
	conn, err := c.main.get(ctx)
	if err != nil {
		return nil, err
	}
	return conn.send(ctx, 0, nil, words...)
}

// ---- Epics --------------------------------------------------------------------------------------

// Epic is a stream of pushes that are numbered from 1, each made once however often it is sent, so
// that a producer goes on where it stopped.
type Epic struct {
	client      *Client
	stage, name string
}

// Progress is how far an epic is.
type Progress struct {
	Resume   int64  // the first number that was not pushed; 1 for a new epic
	Total    int64  // the last number; -1: not known yet
	Accepted int64  // pushes that made a job
	HeldBy   string `json:"held-by"` // why none of its jobs starts
	Stopped  bool   `json:"-"`       // it was cancelled: no more jobs come

	Waiting, Running, Done, Dead, Cancelled, Expired int64 // jobs
}

// Epic names an epic of a stage; it is made by its first push.
func (c *Client) Epic(stage, name string) *Epic { return &Epic{c, stage, name} }

// Push pushes a number and returns the id of its job; "": it was pushed long ago.
func (e *Epic) Push(ctx context.Context, number int64, body any,
	options *PushOptions) (string, error) {
	o := given(options)
	words := o.words(ctx, "PUSH", e.stage, toWord(body), "EPIC", e.name, number)
	return as[string](e.client.do(ctx, o.Room, words...))
}

// Look returns the progress.
func (e *Epic) Look(ctx context.Context) (Progress, error) {
	p, err := e.progress(ctx, 0)
	if errors.Is(err, ErrGone) {
		return Progress{Resume: 1, Total: -1}, nil
	}
	return p, err
}

// Wait waits until all jobs have ended, and returns the progress.
func (e *Epic) Wait(ctx context.Context) (Progress, error) {
	for {
		p, err := e.progress(ctx, waitPiece, "WAIT", waitPiece)
		all := p.Stopped || p.Total >= 0 && p.Resume > p.Total
		if err != nil || all && p.Waiting+p.Running == 0 {
			return p, err
		}
	}
}

// WaitLeft waits until at most so many jobs have not ended, so that a producer stays at most so far
// ahead of the workers.
func (e *Epic) WaitLeft(ctx context.Context, left int64) (Progress, error) {
	for {
		p, err := e.progress(ctx, waitPiece, "LEFT", left, "WAIT", waitPiece)
		if err != nil || p.Waiting+p.Running <= left {
			return p, err
		}
	}
}

// End says that number `last` is the last one.
func (e *Epic) End(ctx context.Context, last int64) error { return e.do(ctx, "END", last) }

// Then gives a job that is pushed in the commit that ends the epic.
func (e *Epic) Then(ctx context.Context, stage, key string, body any) error {
	return e.do(ctx, "THEN", stage, key, toWord(body))
}

// Cancel cancels those of its jobs that have not ended.
func (e *Epic) Cancel(ctx context.Context) error { return e.do(ctx, "CANCEL") }

// Skip says that this number is not pushed.
func (e *Epic) Skip(ctx context.Context, number int64) error { return e.do(ctx, "SKIP", number) }

// Forget drops the epic this long after its end: at least a second, or 0 to keep it.
func (e *Epic) Forget(ctx context.Context, after time.Duration) error {
	return e.do(ctx, "FORGET", after)
}

// Drop removes the epic; its jobs stay.
func (e *Epic) Drop(ctx context.Context) error { return e.do(ctx, "DROP") }

func (e *Epic) do(ctx context.Context, words ...any) error {
	_, err := e.client.do(ctx, 0, append([]any{"EPIC", e.stage, e.name}, words...)...)
	return err
}

// progress reads the fields that have the names of a Progress.
func (e *Epic) progress(ctx context.Context, wait time.Duration,
	words ...any) (p Progress, err error) {
	reply, err := e.client.do(ctx, wait, append([]any{"EPIC", e.stage, e.name}, words...)...)
	if err != nil {
		return p, err
	}
	fields, _ := reply.(map[string]any)
	if text, err := json.Marshal(fields); err == nil {
		_ = json.Unmarshal(text, &p) // what is of another type stays zero
	}
	p.Stopped = fields["stopped"] == int64(1) || fields["stopped"] == true
	return p, nil
}

// ---- Traces -------------------------------------------------------------------------------------

type traceKey struct{}

// WithTrace returns a context whose pushes carry this traceparent. The context of a handler has
// that of its job.
func WithTrace(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceparent)
}

// TraceOf is the traceparent of a context, or "".
func TraceOf(ctx context.Context) string {
	trace, _ := ctx.Value(traceKey{}).(string)
	return trace
}

// random returns hexadecimal digits, two for each byte.
func random(size int) string {
	b := make([]byte, size)
	if _, err := rand.Read(b); err != nil {
		panic(err) // the system has no randomness
	}
	return hex.EncodeToString(b)
}
