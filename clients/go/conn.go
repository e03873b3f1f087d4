// Connections. A conn is one connection to one node: a goroutine writes the commands of all
// callers, another one reads the replies, which come in the same order. A link is a connection that
// comes back, to any of the nodes: whatever is sent again is sent again by its try.

package millrace

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"time"
)

const (
	greetingTime = 5 * time.Second
	replyTime    = 15 * time.Second // a reply is late by so much at most
	forever      = 1 << 62
	repeatTime   = 25 * time.Second // a server keeps the numbers of a source for a minute at least
	pauseLeast   = 50 * time.Millisecond
	pauseMost    = 2 * time.Second
)

type conn struct {
	socket   net.Conn
	node     string
	session  string                // its number at the server
	onCancel func(ids []any)       // jobs that were taken on it are cancelled
	ends     map[string][]chan any // by id, where the ends of called jobs go; only the reader uses it
	ctx      context.Context       // ends when it is closed
	end      context.CancelFunc
	posted   chan struct{} // signals a change of out

	mu      sync.Mutex        // guards what follows
	out     []byte            // commands to be written
	waiting []func(reply any) // for the replies to commands, in the same order
	why     error             // it is closed
}

// send sends a command and waits for its reply; wait is that of post. Landed, if any, gets the reply
// or the error before anything else is read, even if the context has ended; it must not wait, and its
// error closes the connection.
func (c *conn) send(ctx context.Context, wait time.Duration, landed func(any) error,
	words ...any) (any, error) {
	answer := make(chan any, 1)
	c.post(wait, func(reply any) {
		if landed != nil {
			if err := landed(reply); err != nil {
				reply = c.close(err)
			}
		}
		answer <- reply
	}, words)
	signal(c.posted)
	select {
	case reply := <-answer:
		return split(reply)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// split separates replies from errors.
func split(answer any) (any, error) {
	if err, is := answer.(error); is {
		return nil, err
	}
	return answer, nil
}

// post adds a command to those that leave with the next one that is sent. The server may take so long
// to answer; negative: for ever. Done gets the reply, or the error; it must not wait.
func (c *conn) post(wait time.Duration, done func(reply any), words []any) {
	if wait < 0 {
		wait = forever
	}
	late := time.AfterFunc(wait+replyTime, func() { c.close("the server does not answer") })
	answered := func(reply any) {
		late.Stop()
		done(reply)
	}
	c.mu.Lock()
	err := c.why
	if err == nil {
		if c.out, err = encode(c.out, words); err == nil {
			c.waiting = append(c.waiting, answered)
		}
	}
	c.mu.Unlock()
	if err != nil {
		answered(err)
	}
}

// signal fills a channel that holds one signal at most.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (c *conn) write() {
	for {
		select {
		case <-c.posted:
			runtime.Gosched() // others may send now, too
			c.mu.Lock()
			out := c.out
			c.out = nil
			c.mu.Unlock()
			if len(out) == 0 { // it has left with what was sent before
				continue
			}
			if _, err := c.socket.Write(out); err != nil {
				c.close(err)
			}
		case <-c.ctx.Done():
			c.close("the connection was closed")
			return
		}
	}
}

func (c *conn) read() {
	in := bufio.NewReaderSize(c.socket, maxLine)
	for {
		value, err := readValue(in, 0)
		if message, unasked := value.(pushed); unasked {
			c.notice(message)
		} else if err == nil {
			err = c.receive(value)
		}
		if err != nil {
			c.close(err)
			return
		}
	}
}

// receive returns an error if the connection is of no use after this reply.
func (c *conn) receive(reply any) error {
	if failed, is := reply.(*Error); is && failed.Kind == ErrUnreachable {
		return failed
	}
	c.mu.Lock()
	if len(c.waiting) == 0 {
		c.mu.Unlock()
		return malformed("no command was sent")
	}
	done := c.waiting[0]
	c.waiting = c.waiting[1:]
	c.mu.Unlock()
	done(reply)
	return nil
}

// notice reads [cancel, id] and [ended, id, outcome].
func (c *conn) notice(message pushed) {
	switch {
	case len(message) > 1 && message[0] == "cancel" && c.onCancel != nil:
		c.onCancel(message[1:])
	case len(message) > 2 && message[0] == "ended":
		id := fmt.Sprint(message[1])
		for _, end := range c.ends[id] {
			end <- message[2]
		}
		delete(c.ends, id)
	}
}

// close returns why it is closed, now or before.
func (c *conn) close(why any) error {
	c.mu.Lock()
	if c.why == nil {
		c.why = failure(ErrUnreachable, "%s: %v", c.node, why)
	}
	lost := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	_ = c.socket.Close()
	c.end()
	for _, done := range lost {
		done(c.why)
	}
	return c.why
}

// ---- A connection that comes back ---------------------------------------------------------------

type link struct {
	client   *Client
	ctx      context.Context // of its connections
	onCancel func(ids []any)
	lock     chan struct{} // is full while a goroutine uses what follows
	conn     *conn         // the latest one, or nil
}

func (c *Client) link(ctx context.Context, onCancel func([]any)) *link {
	return &link{client: c, ctx: ctx, onCancel: onCancel, lock: make(chan struct{}, 1)}
}

// get returns a connection that is up. It tries each node once; the error is that of the last one.
func (l *link) get(ctx context.Context) (c *conn, err error) {
	select {
	case l.lock <- struct{}{}:
		defer func() { <-l.lock }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l.conn != nil && l.conn.ctx.Err() == nil {
		return l.conn, ctx.Err()
	}
	nodes := l.client.nodes
	first := int(jitter(time.Duration(len(nodes))))
	for n := range nodes {
		l.conn, err = l.dial(ctx, nodes[(first+n)%len(nodes)])
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrStopped) {
			break // it is up, or other nodes would say the same
		}
	}
	return l.conn, err
}

func (l *link) dial(ctx context.Context, node string) (*conn, error) {
	if l.ctx.Err() != nil {
		return nil, failure(ErrUsage, "the client is closed")
	}
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	socket, err := l.client.socket(ctx, node)
	if err != nil {
		refused := failure(ErrUnreachable, "cannot connect to %s: %v", node, err)
		if refused.lasting = isDistrusted(err); !refused.lasting {
			refused.Reason += "; a server is started with: millrace serve --listen " + node
		}
		return nil, refused
	}
	c := &conn{socket: socket, node: node, onCancel: l.onCancel, ends: make(map[string][]chan any),
		posted: make(chan struct{}, 1)}
	c.ctx, c.end = context.WithCancel(l.ctx)
	go c.read()
	go c.write()
	var lost *Error
	err = l.client.greet(ctx, c)
	switch {
	case err == nil:
		if l.client.quietUntil.Swap(0) != 0 {
			l.client.logf("connected again to %s", node)
		}
		return c, nil
	case ctx.Err() != nil:
		err = failure(ErrUnreachable, "%s does not answer", node)
	case errors.As(err, &lost) && lost.Kind == ErrUnreachable:
		err = failure(ErrUnreachable, "%s does not answer as a Millrace server does: %s; "+
			"is it the address of --listen?", node, lost.Reason)
	case errors.Is(err, ErrUsage) || errors.Is(err, ErrIncompatible):
		err = failure(ErrIncompatible, "%s does not speak the protocol of this library: %v; "+
			"connect to a Millrace server of version 0.2 or later", node, err)
	}
	c.close("the greeting has failed")
	return nil, err
}

// isDistrusted: the certificate of the server is not accepted, and will not be later.
func isDistrusted(err error) bool {
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}

func (c *Client) socket(ctx context.Context, node string) (net.Conn, error) {
	if path := strings.TrimPrefix(node, "unix:"); path != node {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	if c.secure {
		return (&tls.Dialer{Config: c.tls}).DialContext(ctx, "tcp", node)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", node)
}

func (c *Client) greet(ctx context.Context, to *conn) error {
	hello := []any{"HELLO", 3}
	if c.secret != "" {
		hello = append(hello, "AUTH", c.user, c.secret)
	}
	reply, err := to.send(ctx, 0, nil, append(hello, "SETNAME", c.name)...)
	if err != nil {
		return err
	}
	about, _ := reply.(map[string]any)
	if about["server"] != "millrace" {
		return failure(ErrIncompatible, "it is not a Millrace server")
	}
	to.session = fmt.Sprint(about["id"])
	_, err = to.send(ctx, 0, nil, "CLIENT", "CANCELS", "ON")
	return err
}

// try calls once, and again after each loss of the connection, for a while. If the context ends
// without a connection, the error says why there is none.
func (l *link) try(ctx context.Context, once func(*conn) (any, error)) (any, error) {
	until := time.Now().Add(repeatTime)
	for pause := pauseLeast; ; pause = least(2*pause, pauseMost) {
		var reply any
		c, err := l.get(ctx)
		if err == nil {
			reply, err = once(c)
		}
		if !mayPass(err) || time.Now().Add(pause).After(until) {
			return reply, err
		}
		l.client.lost(err)
		if !sleep(ctx, pause/2+jitter(pause/2)) {
			return nil, err
		}
	}
}

// lost logs what is tried again: the first error of an outage.
func (c *Client) lost(err error) {
	var e *Error
	now, until := time.Now().UnixNano(), c.quietUntil.Load()
	if errors.As(err, &e) && now > until &&
		c.quietUntil.CompareAndSwap(until, now+int64(repeatTime)) {
		c.logf("%s; trying again", e.Reason)
	}
}

// jitter is less than the limit, and differs from client to client.
func jitter(limit time.Duration) time.Duration {
	return time.Duration(time.Now().UnixNano()) % limit
}

// sleep reports whether the time has passed before the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	passed, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-passed.Done()
	return ctx.Err() == nil
}
