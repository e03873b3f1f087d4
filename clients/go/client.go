package millrace

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	waitPiece   = 10 * time.Second // AWAIT, EPIC and TAKE wait so long at most in one command
	manyItems   = 256              // pushes of PushMany in one command
	sourceIdle  = 30 * time.Second // the server forgets a source after a minute
	sourcesMost = 1000             // stages that have free sources
	lanesMost   = 16               // connections that are kept for commands that wait
)

// Client is a client of a server or cluster. It connects when it is first used, and again after
// each loss of a connection.
type Client struct {
	address address
	name    string
	logf    func(format string, args ...any)
	main    *link

	mu      sync.Mutex // guards what follows
	closed  bool
	sources map[string][]*source
	calls   map[string][]*call // by id: those whose ends are wanted
	lanes   []*link            // free connections for commands that wait
	workers map[*Worker]bool
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
	c := &Client{address: a, name: o.name, logf: o.logf, sources: make(map[string][]*source),
		calls: make(map[string][]*call), workers: make(map[*Worker]bool)}
	c.main = c.link(c.ended, nil)
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
	c.closed = true
	workers := c.workers
	c.workers = make(map[*Worker]bool)
	lanes := c.lanes
	c.lanes = nil
	c.mu.Unlock()
	var all sync.WaitGroup
	for w := range workers {
		all.Add(1)
		go func(w *Worker) {
			defer all.Done()
			_ = w.Close()
		}(w)
	}
	all.Wait()
	for _, lane := range append(lanes, c.main) {
		lane.close()
	}
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

// words are the options as words of the protocol; the key stands elsewhere in some commands.
func (o *PushOptions) words(trace string, withKey bool) (*command, error) {
	c, meta := new(command), any(nil)
	if o != nil {
		meta = o.Meta
		if o.Key != "" && withKey {
			c.add("KEY", o.Key)
		}
		if o.Once != "" {
			c.add("ONCE", o.Once)
		}
		if o.Last {
			c.add("LAST")
		}
		c.time("DELAY", o.Delay).time("DEADLINE", o.Deadline).time("ROOM", o.Room)
		if o.Attempts != 0 {
			c.add("ATTEMPTS").number(int64(o.Attempts))
		}
	}
	if meta == nil && trace != "" {
		meta = map[string]string{"traceparent": trace}
	}
	if meta != nil {
		data, err := toData(meta, "metadata")
		if err != nil {
			return nil, err
		}
		c.add("META").data(data)
	}
	return c, nil
}

func (o *PushOptions) room() time.Duration {
	if o == nil {
		return 0
	}
	return o.Room
}

// time appends an option in milliseconds, if there is one; a part of one counts as one.
func (c *command) time(word string, d time.Duration) *command {
	switch {
	case d < 0:
		c.add(word, "-1")
	case d > 0:
		c.add(word).number(int64((d + time.Millisecond - 1) / time.Millisecond))
	}
	return c
}

// Item is a job of PushMany.
type Item struct {
	Key  string
	Body any
}

// Push pushes a job and returns its id. After a lost connection it is sent again with its number,
// so that it never makes two jobs. The outcome is unknown if the error is ErrUnreachable,
// ErrStopped, or that of the context.
func (c *Client) Push(ctx context.Context, stage string, body any, o *PushOptions) (string, error) {
	words, err := pushWords(ctx, newCommand("PUSH", stage), body, o)
	if err != nil {
		return "", err
	}
	reply, err := c.numbered(ctx, stage, words, o.room(), nil)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(reply), nil
}

func pushWords(ctx context.Context, c *command, body any, o *PushOptions) (*command, error) {
	data, err := toData(body, "body")
	if err != nil {
		return nil, err
	}
	more, err := o.words(TraceOf(ctx), true)
	if err != nil {
		return nil, err
	}
	return c.data(data).join(more), nil
}

// PushMany pushes jobs, in order, and returns their ids. If one is refused, the ids are those of
// the jobs before it.
func (c *Client) PushMany(ctx context.Context, stage string, items []Item,
	o *PushOptions) ([]string, error) {
	ids := make([]string, 0, len(items))
	more, err := o.words(TraceOf(ctx), true)
	if err != nil {
		return nil, err
	}
	head := newCommand("PUSHMANY", stage).join(more)
	for len(ids) < len(items) {
		some := newCommand("ITEMS")
		for n := len(ids); n < len(items) && n < len(ids)+manyItems; n++ {
			body, err := toData(items[n].Body, "body")
			if err != nil {
				return ids, err
			}
			some.add(items[n].Key).data(body)
		}
		reply, err := c.numbered(ctx, stage, head, o.room(), some)
		if err != nil {
			return ids, err
		}
		list, _ := reply.([]any)
		for _, id := range list {
			ids = append(ids, fmt.Sprint(id))
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
	used   time.Time
}

// numbered sends head, a number, and rest.
func (c *Client) numbered(ctx context.Context, stage string, head *command, room time.Duration,
	rest *command) (any, error) {
	lane := c.main
	if room != 0 {
		lane = c.lane()
		defer c.free(lane)
	}
	s := c.source(stage)
	for again := true; ; again = false {
		words := new(command).join(head).add("SOURCE", s.name).number(s.number + 1)
		if rest != nil {
			words.join(rest)
		}
		reply, err := lane.repeat(ctx, words, room)
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

func newSource() *source { return &source{name: "go-" + random(16)} }

func (c *Client) source(stage string) *source {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := c.sources[stage]
	if len(free) == 0 {
		return newSource()
	}
	s := free[len(free)-1]
	c.sources[stage] = free[:len(free)-1]
	if time.Since(s.used) > sourceIdle {
		delete(c.sources, stage) // those below were not used for longer
		return newSource()
	}
	return s
}

func (c *Client) giveBack(stage string, s *source) {
	s.used = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sources) >= sourcesMost {
		c.sources = make(map[string][]*source)
	}
	c.sources[stage] = append(c.sources[stage], s)
}

// lane returns a connection for a command that waits, which would block others on its connection.
func (c *Client) lane() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.lanes); n > 0 {
		lane := c.lanes[n-1]
		c.lanes = c.lanes[:n-1]
		return lane
	}
	lane := c.link(c.ended, nil)
	lane.closed.Store(c.closed)
	return lane
}

// free takes a lane back. One that still waits is closed, so that the server stops waiting, too.
func (c *Client) free(lane *link) {
	c.mu.Lock()
	keep := !c.closed && len(c.lanes) < lanesMost
	if w := lane.wire.Load(); keep && w != nil {
		w.mu.Lock()
		keep = len(w.waiting) == 0
		w.mu.Unlock()
	}
	if keep {
		c.lanes = append(c.lanes, lane)
	}
	c.mu.Unlock()
	if !keep {
		lane.close()
	}
}

// ---- Results ------------------------------------------------------------------------------------

// Call pushes a job, waits for its result and returns it. The deadline of the context is that of
// the job, unless the options have one. The job is cancelled when the caller gives up: when the
// context ends, or by going away. The errors of the job are ErrDead, ErrExpired and ErrCancelled.
func (c *Client) Call(ctx context.Context, stage string, body any, o *PushOptions) (Data, error) {
	options := PushOptions{}
	if o != nil {
		options = *o
	}
	if options.Once == "" {
		options.Once = random(16) // so that it can be sent again
	}
	for {
		if until, has := ctx.Deadline(); has && (o == nil || o.Deadline == 0) {
			if options.Deadline = time.Until(until); options.Deadline <= 0 {
				return nil, contextError(ctx, "a call of "+stage)
			}
		}
		words, err := pushWords(ctx, newCommand("CALL", stage), body, &options)
		if err != nil {
			return nil, err
		}
		result, err := c.callOnce(ctx, stage, words.add("LATER"), options.Room)
		if err != errLost {
			return result, err
		}
	}
}

var errLost = errors.New("the connection was lost after the call was accepted")

// call is a job whose end is wanted. The client's mu guards id and gone.
type call struct {
	end  chan any
	wire *wire // that reports its end
	id   string
	gone bool // the caller has given up
}

func (c *Client) callOnce(ctx context.Context, stage string, words *command,
	room time.Duration) (Data, error) {
	lane := c.main
	if room != 0 {
		lane = c.lane()
		defer c.free(lane)
	}
	job := &call{end: make(chan any, 1)}
	words.landed = func(w *wire, reply any) { c.called(job, w, fmt.Sprint(reply)) }
	if _, err := lane.repeat(ctx, words, room); err != nil {
		c.leave(job, true)
		return nil, err
	}
	select {
	case end := <-job.end:
		return resultOf(end)
	case <-job.wire.closed:
		c.leave(job, false)
	case <-ctx.Done():
		c.leave(job, true)
	}
	select {
	case end := <-job.end:
		return resultOf(end)
	default:
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx, "a call of "+stage)
	}
	return nil, errLost
}

func resultOf(end any) (Data, error) {
	if failed, is := end.(*Error); is {
		return nil, failed
	}
	data, _ := end.(Data)
	return data, nil
}

// called runs when a call is accepted, before its end can be read.
func (c *Client) called(job *call, w *wire, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	job.wire, job.id = w, id
	if job.gone {
		go c.withdraw(id)
		return
	}
	c.calls[id] = append(c.calls[id], job)
}

// ended gives the end of a job to its callers.
func (c *Client) ended(message pushed) {
	if len(message) < 3 || fmt.Sprint(message[0]) != "ended" {
		return
	}
	id := fmt.Sprint(message[1])
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, job := range c.calls[id] {
		job.end <- message[2]
	}
	delete(c.calls, id)
}

// leave forgets a call; its job is cancelled if no other call of this client waits for it.
func (c *Client) leave(job *call, cancel bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	job.gone = true
	var others []*call
	found := false
	for _, other := range c.calls[job.id] {
		if other == job {
			found = true
		} else {
			others = append(others, other)
		}
	}
	if len(others) > 0 {
		c.calls[job.id] = others
		return
	}
	delete(c.calls, job.id)
	if found && cancel {
		go c.withdraw(job.id)
	}
}

func (c *Client) withdraw(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), greetingTime)
	defer cancel()
	if _, err := c.main.ask(ctx, newCommand("CANCEL", id)); err != nil {
		c.logf("cancelling %s: %v", id, err)
	}
}

// Wait waits for a job that was pushed and returns its result; its errors are those of Call.
func (c *Client) Wait(ctx context.Context, id string) (Data, error) {
	lane := c.lane()
	defer c.free(lane)
	for {
		piece := waitPiece
		if until, has := ctx.Deadline(); has && time.Until(until) < piece {
			piece = time.Until(until)
		}
		if piece <= 0 {
			return nil, contextError(ctx, "waiting for job "+id)
		}
		reply, err := lane.repeat(ctx, newCommand("AWAIT", id).time("WAIT", piece), piece)
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
	reply, err := c.main.repeat(ctx, newCommand("CANCEL").add(ids...), 0)
	count, _ := reply.(int64)
	return int(count), err
}

// Job shows a job: status, attempt, reasons and so on, as docs/protocol.md has it. Strings are
// strings, numbers int64.
func (c *Client) Job(ctx context.Context, id string) (map[string]any, error) {
	reply, err := c.main.repeat(ctx, newCommand("JOB", id), 0)
	if err != nil {
		return nil, err
	}
	job, is := texts(reply).(map[string]any)
	if !is {
		return nil, malformed("JOB is answered with %T", reply)
	}
	return job, nil
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
	cmd := new(command)
	for _, word := range words {
		switch v := word.(type) {
		case []byte:
			cmd.data(v)
		default:
			cmd.add(fmt.Sprint(v))
		}
	}
	return c.main.ask(ctx, cmd)
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
	var b [4]byte
	_, _ = rand.Read(b[:])
	return int(binary.LittleEndian.Uint32(b[:]) % uint32(below))
}
