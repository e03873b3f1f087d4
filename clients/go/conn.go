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
	"sync/atomic"
	"time"
)

const (
	greetingTime = 5 * time.Second
	replyTime    = 15 * time.Second // a reply is late by so much at most
	repeatTime   = 25 * time.Second // a server keeps the numbers of a source for a minute at least
	pauseLeast   = 50 * time.Millisecond
	pauseMost    = 2 * time.Second
	writeSize    = 1 << 14
	waitingMost  = 1 << 11 // more than writeSize holds, so that what is waited for was written
)

type conn struct {
	socket   net.Conn
	node     string
	session  string                // its number at the server
	onCancel func(id any)          // a job that was taken on it is cancelled
	ends     map[string][]chan any // by id, where the ends of called jobs go; only the reader uses it
	ctx      context.Context       // ends when it is closed
	end      context.CancelFunc
	requests chan []*request // to be written, each list together
	waiting  chan *request   // to be answered
	closing  sync.Once
	why      error // it is closed
}

// request is a command whose reply has not come.
type request struct {
	text   []byte
	wait   time.Duration         // the server may take so long to answer; negative: for ever
	landed func(reply any) error // gets a good reply before anything else is read; must not wait
	late   *time.Timer
	answer chan any // the reply, or an error
}

func newConn(ctx context.Context, socket net.Conn, node string, onCancel func(any)) *conn {
	c := &conn{socket: socket, node: node, onCancel: onCancel, ends: make(map[string][]chan any),
		requests: make(chan []*request, 256), waiting: make(chan *request, waitingMost)}
	c.ctx, c.end = context.WithCancel(ctx)
	go c.read()
	go c.write()
	return c
}

// send sends a command and waits for its reply; wait and landed are those of the request.
func (c *conn) send(ctx context.Context, wait time.Duration, landed func(any) error,
	words ...any) (any, error) {
	r, err := newRequest(wait, landed, words)
	if err != nil {
		return nil, err
	}
	c.post(ctx, r)
	return c.reply(ctx, r)
}

func newRequest(wait time.Duration, landed func(any) error, words []any) (*request, error) {
	text, err := encode(words)
	return &request{text: text, wait: wait, landed: landed, answer: make(chan any, 1)}, err
}

// post sends commands in one write, if there is a connection.
func (c *conn) post(ctx context.Context, requests ...*request) {
	select {
	case c.requests <- requests:
	case <-c.ctx.Done():
	case <-ctx.Done():
	}
}

// reply waits for the reply to a command that was posted.
func (c *conn) reply(ctx context.Context, r *request) (any, error) {
	select {
	case answer := <-r.answer:
		return split(answer)
	case <-c.ctx.Done():
		return nil, c.close("the connection was closed")
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

// write writes commands, together those that were sent meanwhile.
func (c *conn) write() {
	out := bufio.NewWriterSize(c.socket, writeSize)
	for {
		select {
		case requests := <-c.requests:
			var err error
			for _, r := range requests {
				if r.wait >= 0 {
					r.late = time.AfterFunc(r.wait+replyTime, c.giveUp)
				}
				select {
				case c.waiting <- r:
				case <-c.ctx.Done():
				}
				if err == nil {
					_, err = out.Write(r.text)
				}
			}
			if len(c.requests) == 0 {
				runtime.Gosched() // others may send now, too
			}
			if err == nil && len(c.requests) == 0 {
				err = out.Flush()
			}
			if err != nil {
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
func (c *conn) receive(reply any) (err error) {
	select {
	case r := <-c.waiting:
		if r.late != nil {
			r.late.Stop()
		}
		failed, is := reply.(*Error)
		if is && failed.Kind == ErrUnreachable {
			return failed
		}
		if !is && r.landed != nil {
			err = r.landed(reply)
		}
		if err == nil {
			r.answer <- reply
		}
		return err
	default:
		return malformed("no command was sent")
	}
}

// notice reads [cancel, id] and [ended, id, outcome].
func (c *conn) notice(message pushed) {
	switch {
	case len(message) > 1 && message[0] == "cancel" && c.onCancel != nil:
		c.onCancel(message[1])
	case len(message) > 2 && message[0] == "ended":
		id := fmt.Sprint(message[1])
		for _, end := range c.ends[id] {
			end <- message[2]
		}
		delete(c.ends, id)
	}
}

func (c *conn) giveUp() { c.close("the server does not answer") }

// close returns why it is closed, now or before.
func (c *conn) close(why any) error {
	c.closing.Do(func() {
		c.why = failure(ErrUnreachable, "%s: %v", c.node, why)
		_ = c.socket.Close()
		c.end()
	})
	return c.why
}

// ---- A connection that comes back ---------------------------------------------------------------

type link struct {
	client   *Client
	ctx      context.Context // it comes back until this ends
	end      context.CancelFunc
	onCancel func(id any)
	conn     atomic.Pointer[conn] // the latest one, or nil
	dialing  chan struct{}        // is full while a goroutine connects
}

func (c *Client) link(ctx context.Context, onCancel func(any)) *link {
	l := &link{client: c, onCancel: onCancel, dialing: make(chan struct{}, 1)}
	l.ctx, l.end = context.WithCancel(ctx)
	return l
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
		return nil, ctx.Err()
	}
	if l.conn.Load() != c { // another goroutine has connected meanwhile
		return l.conn.Load(), nil
	}
	nodes := l.client.nodes
	first := int(jitter(time.Duration(len(nodes))))
	for n := range nodes {
		if c, err = l.dial(ctx, nodes[(first+n)%len(nodes)]); err == nil {
			l.conn.Store(c)
			return c, nil
		} else if ctx.Err() != nil {
			return nil, ctx.Err()
		} else if !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrStopped) {
			return nil, err
		}
	}
	return nil, err
}

func (l *link) dial(ctx context.Context, node string) (*conn, error) {
	if l.ctx.Err() != nil {
		return nil, failure(ErrUsage, "the client is closed")
	}
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	socket, err := l.client.socket(ctx, node)
	if isDistrusted(err) {
		refused := failure(ErrUnreachable, "the certificate of %s is refused: %v", node, err)
		refused.lasting = true
		return nil, refused
	} else if err != nil {
		return nil, failure(ErrUnreachable, "cannot connect to %s: %v; a server is started with: "+
			"millrace serve --listen %s", node, err, node)
	}
	c := newConn(l.ctx, socket, node, l.onCancel)
	err = l.client.greet(ctx, c)
	switch {
	case err == nil:
		l.client.logf("millrace: connected to %s", node)
		return c, nil
	case ctx.Err() != nil:
		err = failure(ErrUnreachable, "%s does not answer", node)
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
		l.client.logf("%v; trying again", err)
		if !sleep(ctx, pause/2+jitter(pause/2)) {
			return nil, err
		}
	}
}

// jitter is less than the limit, and differs from client to client.
func jitter(limit time.Duration) time.Duration {
	return time.Duration(time.Now().UnixNano()) % limit
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
