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
	"time"
)

const (
	greetingTime = 5 * time.Second
	replyTime    = 15 * time.Second // a reply is late by so much at most
	watchEvery   = time.Second
	keepBuffer   = 1 << 20
)

// address is where the servers are, and what they want to see.
type address struct {
	nodes        []string // host:port
	tls          *tls.Config
	user, secret string
}

// addressOf reads millrace://[user:secret@]host[:port][,host[:port]…], or millraces:// for TLS.
func addressOf(text string, config *tls.Config) (address, error) {
	var a address
	scheme, rest, _ := strings.Cut(text, "://")
	if (scheme != "millrace" && scheme != "millraces") || rest == "" {
		return a, failure(ErrUsage, "%q is not a URL of Millrace: write "+
			"millrace://127.0.0.1:7411, or millraces://… for TLS", text)
	}
	if scheme == "millraces" {
		a.tls = &tls.Config{}
		if config != nil {
			a.tls = config.Clone()
		}
	}
	hosts := strings.TrimRight(rest, "/")
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
	for _, host := range strings.Split(hosts, ",") {
		node, err := url.Parse("//" + host)
		if err != nil || node.Hostname() == "" || node.Host != host {
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

// request is a command whose reply has not come. done runs in the goroutine that reads: it must not
// wait, nor send. err is an *Error.
type request struct {
	done  func(value any, err error)
	until time.Time
}

// wire is a connection on which replies come in the order of requests.
type wire struct {
	conn    net.Conn
	node    string
	session string // its number at the server
	onPush  func(pushed)
	onClose func(*wire)
	closed  chan struct{}

	mu      sync.Mutex // guards what follows
	why     error
	waiting []request
	out     []byte
	spare   []byte
	writing bool
	retired bool
}

// queue adds a command to what flush writes; its reply may take as long as patience.
func (w *wire) queue(c *command, patience time.Duration, done func(any, error)) {
	w.mu.Lock()
	why := w.why
	if why == nil {
		w.waiting = append(w.waiting, request{done, time.Now().Add(patience)})
		w.out = c.appendTo(w.out)
	}
	w.mu.Unlock()
	if why != nil {
		done(nil, why)
	}
}

// flush writes what is queued. While one goroutine writes, the others leave it their commands, so
// that these travel together.
func (w *wire) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.writing {
		return
	}
	w.writing = true
	for len(w.out) > 0 && w.why == nil {
		out := w.out
		w.out = w.spare[:0]
		w.mu.Unlock()
		_, err := w.conn.Write(out)
		if err != nil {
			w.close(err.Error())
		}
		w.mu.Lock()
		if cap(out) <= keepBuffer {
			w.spare = out
		}
	}
	w.writing = false
}

// ask sends a command and waits for its reply.
func (w *wire) ask(ctx context.Context, c *command, patience time.Duration) (any, error) {
	type answer struct {
		value any
		err   error
	}
	answered := make(chan answer, 1)
	w.queue(c, patience, func(value any, err error) {
		if err == nil && c.landed != nil {
			c.landed(w, value)
		}
		answered <- answer{value, err}
	})
	w.flush()
	select {
	case a := <-answered:
		return a.value, a.err
	case <-ctx.Done():
		return nil, contextError(ctx, "a command")
	}
}

// retire closes the connection when all replies have come.
func (w *wire) retire() {
	w.mu.Lock()
	w.retired = true
	idle := len(w.waiting) == 0
	w.mu.Unlock()
	if idle {
		w.close("it was replaced")
	}
}

func (w *wire) close(why string) {
	w.mu.Lock()
	if w.why != nil {
		w.mu.Unlock()
		return
	}
	w.why = failure(ErrUnreachable, "%s: %s", w.node, why)
	waiting := w.waiting
	w.waiting, w.out = nil, nil
	w.mu.Unlock()
	_ = w.conn.Close()
	close(w.closed)
	for _, r := range waiting {
		r.done(nil, w.why)
	}
	if w.onClose != nil {
		w.onClose(w)
	}
}

func (w *wire) isClosed() bool {
	select {
	case <-w.closed:
		return true
	default:
		return false
	}
}

func (w *wire) read() {
	r := bufio.NewReaderSize(w.conn, maxLine)
	for {
		value, err := readValue(r, 0)
		if err == nil {
			err = w.deliver(value)
		}
		switch {
		case err == io.EOF:
			w.close("the server closed the connection")
			return
		case err != nil:
			w.close(reasonOf(err))
			return
		}
	}
}

func (w *wire) deliver(value any) error {
	if message, unasked := value.(pushed); unasked {
		if w.onPush != nil && len(message) > 0 {
			w.onPush(message)
		}
		return nil
	}
	w.mu.Lock()
	if len(w.waiting) == 0 {
		w.mu.Unlock()
		return malformed("no command was sent")
	}
	r := w.waiting[0]
	w.waiting[0] = request{}
	w.waiting = w.waiting[1:]
	last := w.retired && len(w.waiting) == 0
	w.mu.Unlock()
	if last {
		defer w.close("it was replaced")
	}
	if failed, is := value.(*Error); is {
		r.done(nil, failed)
	} else {
		r.done(value, nil)
	}
	return nil
}

// watch closes the connection when a reply is late.
func (w *wire) watch() {
	ticker := time.NewTicker(watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-w.closed:
			return
		case now := <-ticker.C:
			w.mu.Lock()
			late := len(w.waiting) > 0 && now.After(w.waiting[0].until)
			w.mu.Unlock()
			if late {
				w.close("the server does not answer")
			}
		}
	}
}

// dial connects to a node and waits until it has read its store.
func (c *Client) dial(ctx context.Context, node string, onPush func(pushed),
	onClose func(*wire)) (*wire, error) {
	ctx, cancel := context.WithTimeout(ctx, greetingTime)
	defer cancel()
	conn, err := c.connect(ctx, node)
	if err != nil {
		if isDistrusted(err) {
			failed := failure(ErrUnreachable, "the certificate of %s is refused: %v; give the "+
				"authority that signed it with WithTLS", node, err)
			failed.vain = true
			return nil, failed
		}
		return nil, failure(ErrUnreachable, "cannot connect to %s: %v; a server is started with: "+
			"millrace serve --listen %s", node, err, node)
	}
	w := &wire{conn: conn, node: node, onPush: onPush, onClose: onClose,
		closed: make(chan struct{})}
	go w.read()
	go w.watch()
	if err := c.greet(ctx, w); err != nil {
		w.close("the connection was closed")
		if errors.Is(err, ErrTimeout) {
			return nil, failure(ErrUnreachable, "%s does not answer", node)
		}
		return nil, err
	}
	return w, nil
}

func (c *Client) connect(ctx context.Context, node string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", node)
	if err != nil || c.address.tls == nil {
		return conn, err
	}
	config := c.address.tls
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName, _, _ = net.SplitHostPort(node)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
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

func (c *Client) greet(ctx context.Context, w *wire) error {
	hello := newCommand("HELLO", "3")
	if c.address.secret != "" {
		hello.add("AUTH", c.address.user, c.address.secret)
	}
	err := c.agree(ctx, w, hello.add("SETNAME", c.name))
	if errors.Is(err, ErrUsage) || errors.Is(err, ErrIncompatible) {
		return failure(ErrIncompatible, "%s does not speak the protocol of this library: %s; "+
			"connect to a Millrace server of version 0.2 or later", w.node, reasonOf(err))
	}
	return err
}

func (c *Client) agree(ctx context.Context, w *wire, hello *command) error {
	reply, err := w.ask(ctx, hello, replyTime)
	if err != nil {
		return err
	}
	about, _ := reply.(map[string]any)
	if fmt.Sprint(about["server"]) != "millrace" {
		return failure(ErrIncompatible, "it is not a Millrace server")
	}
	w.session = fmt.Sprint(about["id"])
	if _, err := w.ask(ctx, newCommand("CLIENT", "CANCELS", "ON"), replyTime); err != nil {
		return err
	}
	for {
		info, err := w.ask(ctx, newCommand("INFO", "persistence"), replyTime)
		if err != nil || !strings.Contains(fmt.Sprint(info), "loading:1") {
			return err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return failure(ErrStopped, "%s is still reading its store", w.node)
		}
	}
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

func reasonOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return err.Error()
}
