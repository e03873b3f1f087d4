package millrace

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	waitPiece   = 10 * time.Second // AWAIT, EPIC and TAKE wait so long at most in one command
	manyItems   = 256              // pushes of PushMany in one command
	sourcesMost = 1000             // stages that have free sources
	lanesMost   = 16               // connections that are kept for commands that wait
)

// Client is a client of a server or cluster. It connects when it is first used, and again after
// each loss of a connection.
type Client struct {
	address     address
	name        string
	logf        func(format string, args ...any)
	ctx         context.Context // of the connections
	end         context.CancelFunc
	stopping    context.Context // of the workers
	stopWorkers context.CancelFunc
	main        *link
	lanes       chan *link // free connections for commands that wait

	mu      sync.Mutex // guards what follows
	sources map[string][]*source
	workers sync.WaitGroup // that run
}

// Option is an option of Open.
type Option func(*options)

type options struct {
	token, name string
	tls         *tls.Config
	logf        func(format string, args ...any)
}

// WithToken gives the secret of a token; otherwise it is in the URL (millrace://name:secret@host),
// in MILLRACE_TOKEN, or in the file that MILLRACE_TOKEN_FILE names.
func WithToken(secret string) Option { return func(o *options) { o.token = secret } }

// WithTLS gives certificates and the like, for millraces:// URLs.
func WithTLS(config *tls.Config) Option { return func(o *options) { o.tls = config } }

// WithName gives the name that the server shows; it must be unique for each process.
func WithName(name string) Option { return func(o *options) { o.name = name } }

// WithLog gives a function for messages, such as log.Printf; without it there are none.
func WithLog(logf func(format string, args ...any)) Option {
	return func(o *options) { o.logf = logf }
}

// Open makes a client. The URL is millrace://host:port or millraces://host:port for TLS, with
// commas between several nodes; "" stands for MILLRACE_URL, or else millrace://127.0.0.1:7411.
func Open(url string, with ...Option) (*Client, error) {
	o := options{name: fmt.Sprintf("go-%d-%s", os.Getpid(), random(4)),
		logf: func(string, ...any) {}}
	for _, set := range with {
		set(&o)
	}
	if url == "" {
		url = os.Getenv("MILLRACE_URL")
	}
	if url == "" {
		url = "millrace://127.0.0.1:7411"
	}
	a, err := addressOf(url, o.tls)
	if err != nil {
		return nil, err
	}
	if a.secret, err = secretOf(o.token, a.secret); err != nil {
		return nil, err
	}
	c := &Client{address: a, name: o.name, logf: o.logf, lanes: make(chan *link, lanesMost),
		sources: make(map[string][]*source)}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.stopping, c.stopWorkers = context.WithCancel(c.ctx)
	c.main = c.link(c.ctx, nil)
	return c, nil
}

func secretOf(option, url string) (string, error) {
	for _, secret := range []string{option, url, os.Getenv("MILLRACE_TOKEN")} {
		if secret != "" {
			return secret, nil
		}
	}
	path := os.Getenv("MILLRACE_TOKEN_FILE")
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", failure(ErrUsage, "cannot read MILLRACE_TOKEN_FILE: %v", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// Close stops the workers as Worker.Close does, and closes all connections.
func (c *Client) Close() error {
	c.mu.Lock()
	c.stopWorkers()
	c.mu.Unlock()
	c.workers.Wait()
	c.end()
	return nil
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

// words are the options as words of the protocol, without the key; trace is the default of Meta.
func (o *PushOptions) words(trace string) (words []any) {
	add := func(is bool, more ...any) {
		if is {
			words = append(words, more...)
		}
	}
	meta := o.Meta
	if meta == nil && trace != "" {
		meta = map[string]string{"traceparent": trace}
	}
	add(o.Once != "", "ONCE", o.Once)
	add(o.Last, "LAST")
	add(o.Delay != 0, "DELAY", o.Delay)
	add(o.Deadline != 0, "DEADLINE", o.Deadline)
	add(o.Room != 0, "ROOM", o.Room)
	add(o.Attempts != 0, "ATTEMPTS", o.Attempts)
	add(meta != nil, "META", toData(meta, "metadata"))
	return words
}

// given is what stands for nil, too.
func given[T any](options *T) (o T) {
	if options != nil {
		o = *options
	}
	return o
}

// Item is a job of PushMany.
type Item struct {
	Key  string
	Body any
}

// Push pushes a job and returns its id. After a lost connection it is sent again with its number,
// so that it never makes two jobs. The outcome is unknown if the error is ErrUnreachable,
// ErrStopped, or that of the context.
func (c *Client) Push(ctx context.Context, stage string, body any,
	options *PushOptions) (string, error) {
	o := given(options)
	reply, err := c.numbered(ctx, stage, o.Room, pushWords(ctx, "PUSH", stage, body, o))
	return idOf(reply), err
}

func idOf(reply any) string {
	if reply == nil {
		return ""
	}
	return fmt.Sprint(reply)
}

func pushWords(ctx context.Context, name, stage string, body any, o PushOptions) []any {
	words := []any{name, stage, toData(body, "body")}
	if o.Key != "" {
		words = append(words, "KEY", o.Key)
	}
	return append(words, o.words(TraceOf(ctx))...)
}

// PushMany pushes jobs, in order, and returns their ids. If one is refused, the ids are those of
// the jobs before it.
func (c *Client) PushMany(ctx context.Context, stage string, items []Item,
	options *PushOptions) ([]string, error) {
	o := given(options)
	head := append([]any{"PUSHMANY", stage}, o.words(TraceOf(ctx))...)
	ids := make([]string, 0, len(items))
	for len(ids) < len(items) {
		some := []any{"ITEMS"}
		for _, item := range items[len(ids):least(len(items), len(ids)+manyItems)] {
			some = append(some, item.Key, toData(item.Body, "body"))
		}
		reply, err := c.numbered(ctx, stage, o.Room, head, some...)
		if err != nil {
			return ids, err
		}
		list, _ := reply.([]any)
		for _, id := range list {
			ids = append(ids, idOf(id))
		}
		if len(list) == 0 {
			return ids, malformed("PUSHMANY has pushed nothing")
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

func newSource() *source { return &source{name: "go-" + random(16)} }

// numbered sends head, a number, and rest.
func (c *Client) numbered(ctx context.Context, stage string, room time.Duration, head []any,
	rest ...any) (any, error) {
	lane, free := c.lane(ctx, room)
	defer free()
	s := c.source(stage)
	for again := true; ; again = false {
		words := append([]any{}, head...)
		words = append(append(words, "SOURCE", s.name, s.number+1), rest...)
		reply, err := lane.repeat(ctx, room, words...)
		switch {
		case errors.Is(err, ErrGap) && again: // the server has forgotten the source
			s = newSource()
			continue
		case errors.Is(err, ErrFull) && again && strings.HasSuffix(err.Error(), "connect again"):
			lane.renew() // this one has too many refused sources
			continue
		case err == nil:
			s.number++
			if list, is := reply.([]any); is {
				s.number += int64(len(list)) - 1
			}
		case ctx.Err() != nil || mayRepeat(err):
			return nil, err // the number may have been used: the source is given up
		}
		c.giveBack(stage, s)
		return reply, err
	}
}

func (c *Client) source(stage string) *source {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.sources[stage]
	if len(free) == 0 {
		return newSource()
	}
	last := len(free) - 1
	c.sources[stage] = free[:last]
	return free[last]
}

func (c *Client) giveBack(stage string, s *source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sources) >= sourcesMost {
		c.sources = make(map[string][]*source)
	}
	c.sources[stage] = append(c.sources[stage], s)
}

// lane returns the connection for a command: a free one if it waits, since it blocks others of its
// connection. It is to be freed; one that may still wait is closed, so that the server stops, too.
func (c *Client) lane(ctx context.Context, wait time.Duration) (lane *link, free func()) {
	if wait == 0 {
		return c.main, func() {}
	}
	select {
	case lane = <-c.lanes:
	default:
		lane = c.link(c.ctx, nil)
	}
	return lane, func() {
		if ctx.Err() == nil {
			select {
			case c.lanes <- lane:
				return
			default:
			}
		}
		if conn := lane.conn.Load(); conn != nil {
			conn.close("its command was given up")
		}
	}
}

// ---- Results ------------------------------------------------------------------------------------

// Call pushes a job, waits for its result and returns it. The deadline of the context is that of
// the job, unless the options have one. The job is cancelled when the caller gives up: when the
// context ends, or by going away. The errors of the job are ErrDead, ErrExpired and ErrCancelled.
func (c *Client) Call(ctx context.Context, stage string, body any,
	options *PushOptions) (Data, error) {
	o := given(options)
	if o.Once == "" {
		o.Once = random(16) // so that it can be sent again
	}
	until, limited := ctx.Deadline()
	limited = limited && o.Deadline == 0
	for {
		if limited {
			if o.Deadline = time.Until(until); o.Deadline <= 0 {
				return nil, contextError(ctx, "a call of "+stage)
			}
		}
		words := append(pushWords(ctx, "CALL", stage, body, o), "LATER")
		end, err := c.callOnce(ctx, o.Room, words)
		if failed, is := end.(*Error); is {
			err = failed
		}
		if err != errLost {
			data, _ := end.(Data)
			return data, err
		}
	}
}

var errLost = errors.New("the connection was lost after the call was accepted")

// callOnce returns how the job has ended.
func (c *Client) callOnce(ctx context.Context, room time.Duration, words []any) (any, error) {
	text, err := encode(words)
	if err != nil {
		return nil, err
	}
	lane, free := c.lane(ctx, room)
	defer free()
	job, via := &call{end: make(chan any, 1)}, (*conn)(nil)
	_, err = lane.try(ctx, func(conn *conn) (any, error) {
		via = conn
		return conn.send(ctx, text, room, func(id any) {
			if conn.expect(job, idOf(id)); ctx.Err() != nil {
				c.leave(conn, job) // the caller may have left before
			}
		})
	})
	if err == nil {
		select {
		case end := <-job.end:
			return end, nil
		case <-via.ctx.Done():
			err = errLost
		case <-ctx.Done():
			err = contextError(ctx, "a call")
		}
	}
	if via != nil && ctx.Err() != nil {
		c.leave(via, job)
	}
	select {
	case end := <-job.end:
		return end, nil
	default:
		return nil, err
	}
}

// leave cancels the job of a call, unless another call of the connection waits for it.
func (c *Client) leave(conn *conn, job *call) {
	if !conn.leave(job) {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(c.ctx, greetingTime)
		defer cancel()
		if _, err := c.main.ask(ctx, "CANCEL", job.id); err != nil {
			c.logf("cancelling %s: %v", job.id, err)
		}
	}()
}

// Wait waits for a job that was pushed and returns its result; its errors are those of Call.
func (c *Client) Wait(ctx context.Context, id string) (Data, error) {
	lane, free := c.lane(ctx, waitPiece)
	defer free()
	for {
		piece := waitPiece
		if until, has := ctx.Deadline(); has && time.Until(until) < piece {
			piece = time.Until(until)
		}
		if piece <= 0 {
			return nil, contextError(ctx, "waiting for job "+id)
		}
		reply, err := lane.repeat(ctx, piece, "AWAIT", id, "WAIT", piece)
		if data, is := reply.(Data); err != nil || is {
			return data, err
		}
	}
}

// Await is Wait.
func (c *Client) Await(ctx context.Context, id string) (Data, error) { return c.Wait(ctx, id) }

// Cancel cancels jobs: those that wait do not start, those that run are asked to stop. It returns
// how many had not ended.
func (c *Client) Cancel(ctx context.Context, ids ...string) (int, error) {
	words := []any{"CANCEL"}
	for _, id := range ids {
		words = append(words, id)
	}
	reply, err := c.main.repeat(ctx, 0, words...)
	count, _ := reply.(int64)
	return int(count), err
}

// Job shows a job: status, attempt, reasons and so on, as docs/protocol.md has it. Strings are
// strings, numbers int64.
func (c *Client) Job(ctx context.Context, id string) (map[string]any, error) {
	reply, err := c.main.repeat(ctx, 0, "JOB", id)
	job, is := texts(reply).(map[string]any)
	if err == nil && !is {
		err = malformed("JOB is answered with %T", reply)
	}
	return job, err
}

// texts turns all Data within a reply into strings.
func texts(value any) any {
	switch v := value.(type) {
	case Data:
		return string(v)
	case []any:
		for n := range v {
			v[n] = texts(v[n])
		}
	case map[string]any:
		for name := range v {
			v[name] = texts(v[name])
		}
	}
	return value
}

// Command sends any command of docs/protocol.md, once. A reply is Data, string, int64, float64,
// bool, nil, *Error within a list, []any or map[string]any. A command that waits holds up the
// others of this client.
func (c *Client) Command(ctx context.Context, words ...any) (any, error) {
	return c.main.ask(ctx, words...)
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

// random returns twice as many hexadecimal digits.
func random(bytes int) string {
	b := make([]byte, bytes)
	if _, err := rand.Read(b); err != nil {
		panic(err) // the system has no randomness
	}
	return hex.EncodeToString(b)
}

func chance(below int) int {
	n, _ := strconv.ParseUint(random(4), 16, 32)
	return int(n) % below
}
