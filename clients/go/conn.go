package millrace

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	greetingTime = 5 * time.Second
	replyTime    = 15 * time.Second // a reply is late by so much at most
	repeatTime   = 25 * time.Second // a server keeps the numbers of a source for a minute at least
	pauseLeast   = 50 * time.Millisecond
	pauseMost    = 2 * time.Second
	keepBuffer   = 1 << 20
	forever      = time.Duration(1<<63 - 1)
)

// address is where the servers are, and what they want to see.
type address struct {
	nodes        []string // host:port, or unix:path
	tls          *tls.Config
	user, secret string
}

// addressOf reads millrace://[[user:]secret@]host[:port][,host[:port]…], millraces:// for TLS, or
// unix:path and unix://[[user:]secret@]/path for a socket file.
func addressOf(text string, config *tls.Config) (a address, err error) {
	scheme, place, _ := strings.Cut(text, ":")
	named := strings.TrimPrefix(place, "//")
	hosts, path := strings.TrimRight(named, "/"), ""
	switch {
	case scheme == "unix" && named == place:
		hosts, path = "", place
	case scheme == "unix":
		hosts, path = named, ""
		if slash := strings.IndexByte(named, '/'); slash >= 0 {
			hosts, path = named[:slash], named[slash:]
		}
	case scheme == "millraces" && named != place:
		a.tls = &tls.Config{}
		if config != nil {
			a.tls = config.Clone()
		}
	case scheme != "millrace" || named == place:
		return a, failure(ErrUsage, "%q is not a URL of Millrace: write millrace://127.0.0.1:7411, "+
			"millraces://… for TLS, or unix:PATH for a socket file", text)
	}
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		user, secret, both := strings.Cut(hosts[:at], ":")
		if !both {
			user, secret = "", user
		}
		a.user, _ = url.PathUnescape(user)
		a.secret, _ = url.PathUnescape(secret)
		hosts = hosts[at+1:]
	}
	if a.user == "" {
		a.user = "default"
	}
	if scheme == "unix" && hosts == "" && path != "" {
		a.nodes = []string{"unix:" + path}
		return a, nil
	}
	for _, host := range strings.Split(hosts, ",") {
		node, err := url.Parse("//" + host)
		if err != nil || node.Hostname() == "" || node.Host != host || scheme == "unix" {
			return a, failure(ErrUsage, "the URL of Millrace has a host that is none: %q", host)
		}
		port := node.Port()
		if port == "" {
			port = "7411"
		}
		a.nodes = append(a.nodes, net.JoinHostPort(node.Hostname(), port))
	}
	return a, nil
}

// ---- One connection -----------------------------------------------------------------------------

// conn is a connection to a node. Replies come in the order of commands.
type conn struct {
	socket   net.Conn
	node     string
	session  string             // its number at the server
	onCancel func(ids []any)    // jobs that were taken on it are cancelled
	ctx      context.Context    // ends when it is closed
	end      context.CancelFunc // of ctx
	kick     chan struct{}      // there is something to write

	mu      sync.Mutex // guards what follows
	why     error      // it is closed
	out     []byte
	waiting []request
	calls   map[string]map[*call]bool // by id: those whose ends are wanted
	retired bool                      // it is closed when all has come
}

// request is a command whose reply has not come.
type request struct {
	answer chan answer
	landed func(reply any) // runs before anything else is read, if it has succeeded; must not wait
	late   *time.Timer
}

type answer struct {
	reply any
	err   error
}

// call is a job whose end is wanted. The mu of its conn guards id.
type call struct {
	id  string
	end chan any // Data or *Error
}

func newConn(ctx context.Context, socket net.Conn, node string, onCancel func([]any)) *conn {
	c := &conn{socket: socket, node: node, onCancel: onCancel, kick: make(chan struct{}, 1),
		calls: make(map[string]map[*call]bool)}
	c.ctx, c.end = context.WithCancel(ctx)
	go c.read()
	go c.write()
	go func() {
		<-c.ctx.Done()
		c.close("the client was closed")
	}()
	return c
}

// ask sends a command and waits for its reply.
func (c *conn) ask(ctx context.Context, words ...any) (any, error) {
	text, err := encode(words)
	if err != nil {
		return nil, err
	}
	return c.send(ctx, text, 0, nil)
}

// send sends an encoded command that the server may keep waiting for a while; negative: for ever.
func (c *conn) send(ctx context.Context, text []byte, wait time.Duration,
	landed func(any)) (any, error) {
	patience := wait + replyTime
	if wait < 0 {
		patience = forever
	}
	r := request{answer: make(chan answer, 1), landed: landed}
	c.mu.Lock()
	if c.why != nil {
		c.mu.Unlock()
		return nil, c.why
	}
	// It also closes a connection whose callers give up sooner.
	r.late = time.AfterFunc(patience, func() { c.close("the server does not answer") })
	c.waiting = append(c.waiting, r)
	c.out = append(c.out, text...)
	c.mu.Unlock()
	signal(c.kick)
	select {
	case a := <-r.answer:
		return a.reply, a.err
	case <-ctx.Done():
		return nil, contextError(ctx, "a command")
	}
}

// write writes what was sent meanwhile, together.
func (c *conn) write() {
	var out []byte
	for {
		select {
		case <-c.kick:
		case <-c.ctx.Done():
			return
		}
		c.mu.Lock()
		out, c.out = c.out, out[:0]
		c.mu.Unlock()
		if _, err := c.socket.Write(out); err != nil {
			c.close(err.Error())
		}
		if cap(out) > keepBuffer {
			out = nil
		}
	}
}

func (c *conn) read() {
	r := bufio.NewReaderSize(c.socket, maxLine)
	for {
		value, err := readValue(r, 0)
		if err == nil {
			err = c.receive(value)
		}
		switch {
		case err == io.EOF:
			c.close("the server closed the connection")
			return
		case err != nil:
			c.close(reasonOf(err))
			return
		}
	}
}

func (c *conn) receive(value any) error {
	defer c.closeRetired()
	if message, unasked := value.(pushed); unasked {
		c.notice(message)
		return nil
	}
	c.mu.Lock()
	if len(c.waiting) == 0 {
		c.mu.Unlock()
		return malformed("no command was sent")
	}
	r := c.waiting[0]
	c.waiting[0] = request{}
	c.waiting = c.waiting[1:]
	c.mu.Unlock()
	r.late.Stop()
	if failed, is := value.(*Error); is {
		r.answer <- answer{nil, failed}
		return nil
	}
	if r.landed != nil {
		r.landed(value)
	}
	r.answer <- answer{value, nil}
	return nil
}

// notice reads [cancel, id …] and [ended, id, outcome].
func (c *conn) notice(message pushed) {
	switch {
	case len(message) > 0 && fmt.Sprint(message[0]) == "cancel" && c.onCancel != nil:
		c.onCancel(message[1:])
	case len(message) > 2 && fmt.Sprint(message[0]) == "ended":
		c.mu.Lock()
		defer c.mu.Unlock()
		id := fmt.Sprint(message[1])
		for job := range c.calls[id] {
			job.end <- message[2]
		}
		delete(c.calls, id)
	}
}

// expect notes a call that was accepted, before its end can be read.
func (c *conn) expect(job *call, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[id] == nil {
		c.calls[id] = make(map[*call]bool)
	}
	job.id, c.calls[id][job] = id, true
}

// leave forgets a call; it reports whether no other one waits for its job, which has not ended.
func (c *conn) leave(job *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	jobs := c.calls[job.id]
	found := jobs[job]
	if delete(jobs, job); len(jobs) == 0 {
		delete(c.calls, job.id)
	}
	return found && len(jobs) == 0
}

// retire closes the connection when all replies and ends have come.
func (c *conn) retire() {
	c.mu.Lock()
	c.retired = true
	c.mu.Unlock()
	c.closeRetired()
}

func (c *conn) closeRetired() {
	c.mu.Lock()
	idle := c.retired && len(c.waiting)+len(c.calls) == 0
	c.mu.Unlock()
	if idle {
		c.close("it was replaced")
	}
}

func (c *conn) close(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return
	}
	c.why = failure(ErrUnreachable, "%s: %s", c.node, why)
	_ = c.socket.Close()
	c.end()
	for _, r := range c.waiting {
		r.late.Stop()
		r.answer <- answer{nil, c.why}
	}
	c.waiting, c.out = nil, nil
}

// ---- Connecting ---------------------------------------------------------------------------------

// dial connects to a node and waits until it has read its store.
func (l *link) dial(ctx context.Context, node string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	socket, err := l.client.connect(ctx, node)
	if isDistrusted(err) {
		return nil, &Error{Kind: ErrUnreachable, vain: true, Reason: fmt.Sprintf("the certificate of "+
			"%s is refused: %v; give the authority that signed it with WithTLS", node, err)}
	}
	if err != nil {
		return nil, failure(ErrUnreachable, "cannot connect to %s: %v; a server is started with: "+
			"millrace serve --listen %s", node, err, node)
	}
	c := newConn(l.ctx, socket, node, l.onCancel)
	err = l.client.greet(ctx, c)
	switch {
	case err == nil:
		l.client.logf("millrace: connected to %s", node)
		return c, nil
	case errors.Is(err, ErrTimeout):
		err = failure(ErrUnreachable, "%s does not answer", node)
	case errors.Is(err, ErrUsage) || errors.Is(err, ErrIncompatible):
		err = failure(ErrIncompatible, "%s does not speak the protocol of this library: %s; "+
			"connect to a Millrace server of version 0.2 or later", node, reasonOf(err))
	}
	c.close("the greeting has failed")
	return nil, err
}

func (c *Client) connect(ctx context.Context, node string) (net.Conn, error) {
	network, place := "tcp", node
	if strings.HasPrefix(node, "unix:") {
		network, place = "unix", node[len("unix:"):]
	}
	socket, err := new(net.Dialer).DialContext(ctx, network, place)
	if err != nil || c.address.tls == nil {
		return socket, err
	}
	config := c.address.tls
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(node)
	}
	secure := tls.Client(socket, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return secure, nil
}

// isDistrusted: the certificate of the server is not accepted, and will not be later.
func isDistrusted(err error) bool {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

func (c *Client) greet(ctx context.Context, to *conn) error {
	hello := []any{"HELLO", "3"}
	if c.address.secret != "" {
		hello = append(hello, "AUTH", c.address.user, c.address.secret)
	}
	reply, err := to.ask(ctx, append(hello, "SETNAME", c.name)...)
	if err != nil {
		return err
	}
	about, _ := reply.(map[string]any)
	if fmt.Sprint(about["server"]) != "millrace" {
		return failure(ErrIncompatible, "it is not a Millrace server")
	}
	to.session = fmt.Sprint(about["id"])
	if _, err := to.ask(ctx, "CLIENT", "CANCELS", "ON"); err != nil {
		return err
	}
	for {
		info, err := to.ask(ctx, "INFO", "persistence")
		if err != nil || !strings.Contains(fmt.Sprint(info), "loading:1") {
			return err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return failure(ErrStopped, "%s is still reading its store", to.node)
		}
	}
}

// ---- A connection that comes back ---------------------------------------------------------------

// link is a connection that comes back, to any of the nodes, until its context ends.
type link struct {
	client   *Client
	ctx      context.Context
	onCancel func(ids []any)
	conn     atomic.Pointer[conn]
	dialing  chan struct{} // is full while a goroutine dials
	node     int           // guarded by dialing
}

func (c *Client) link(ctx context.Context, onCancel func([]any)) *link {
	return &link{client: c, ctx: ctx, onCancel: onCancel, dialing: make(chan struct{}, 1),
		node: chance(len(c.address.nodes))}
}

// get returns a connection that is up. It tries each node once; the error is that of the last one.
func (l *link) get(ctx context.Context) (c *conn, err error) {
	if c = l.conn.Load(); c != nil && c.ctx.Err() == nil {
		return c, nil
	}
	select {
	case l.dialing <- struct{}{}:
		defer func() { <-l.dialing }()
	case <-ctx.Done():
		return nil, contextError(ctx, "connecting")
	}
	if c = l.conn.Load(); c != nil && c.ctx.Err() == nil {
		return c, nil
	}
	nodes := l.client.address.nodes
	for range nodes {
		if l.ctx.Err() != nil {
			return nil, failure(ErrUsage, "the client is closed")
		}
		c, err = l.dial(ctx, nodes[l.node%len(nodes)])
		switch {
		case err == nil:
			l.conn.Store(c)
			return c, nil
		case ctx.Err() != nil:
			return nil, contextError(ctx, "connecting")
		case !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrStopped):
			return nil, err
		}
		l.node++
	}
	return nil, err
}

// ask sends a command once.
func (l *link) ask(ctx context.Context, words ...any) (any, error) {
	c, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return c.ask(ctx, words...)
}

// repeat sends a command that may be sent twice, again after each loss of the connection. wait is
// how long the server may wait before it answers; negative: for ever.
func (l *link) repeat(ctx context.Context, wait time.Duration, words ...any) (any, error) {
	text, err := encode(words)
	if err != nil {
		return nil, err
	}
	return l.try(ctx, func(c *conn) (any, error) { return c.send(ctx, text, wait, nil) })
}

func (l *link) try(ctx context.Context, once func(*conn) (any, error)) (any, error) {
	until, pause := time.Now().Add(repeatTime), backoff(pauseLeast)
	for {
		c, err := l.get(ctx)
		if err == nil {
			var reply any
			if reply, err = once(c); err == nil {
				return reply, nil
			}
		}
		if !mayRepeat(err) || time.Now().Add(time.Duration(pause)).After(until) {
			return nil, err
		}
		l.client.logf("%v; trying again", err)
		if pause = pause.wait(ctx); ctx.Err() == context.DeadlineExceeded {
			return nil, err // which says more than that the time is over
		} else if ctx.Err() != nil {
			return nil, contextError(ctx, "a command")
		}
	}
}

// renew makes the next command use a new connection.
func (l *link) renew() {
	if c := l.conn.Swap(nil); c != nil {
		c.retire()
	}
}

// backoff is the next pause between tries.
type backoff time.Duration

// wait sleeps for about that long, less if the context ends; returns the pause after that.
func (b backoff) wait(ctx context.Context) backoff {
	sleep(ctx, time.Duration(b)/2+time.Duration(chance(int(b/2))))
	if b *= 2; b > backoff(pauseMost) {
		b = backoff(pauseMost)
	}
	return b
}

// sleep reports whether the time has passed before the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// signal fills a channel that holds one signal at most.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
