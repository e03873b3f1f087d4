package millrace

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

const (
	repeatTime = 25 * time.Second // a server keeps the numbers of a source for a minute at least
	pauseLeast = 50 * time.Millisecond
	pauseMost  = 2 * time.Second
)

// link is a connection that comes back, to any of the nodes.
type link struct {
	client  *Client
	onPush  func(pushed)
	onClose func(*wire)
	wire    atomic.Pointer[wire]
	dialing chan struct{} // holds a token while a goroutine dials
	closed  atomic.Bool
	node    int // guarded by dialing
}

func (c *Client) link(onPush func(pushed), onClose func(*wire)) *link {
	return &link{client: c, onPush: onPush, onClose: onClose, dialing: make(chan struct{}, 1),
		node: chance(len(c.address.nodes))}
}

// get returns a connection that is up. It tries each node once; the error is that of the last one.
func (l *link) get(ctx context.Context) (*wire, error) {
	if w := l.wire.Load(); w != nil && !w.isClosed() && !l.closed.Load() {
		return w, nil
	}
	select {
	case l.dialing <- struct{}{}:
		defer func() { <-l.dialing }()
	case <-ctx.Done():
		return nil, contextError(ctx, "connecting")
	}
	if w := l.wire.Load(); w != nil && !w.isClosed() {
		return w, nil
	}
	return l.dial(ctx)
}

func (l *link) dial(ctx context.Context) (w *wire, err error) {
	nodes := l.client.address.nodes
	for range nodes {
		if l.closed.Load() {
			return nil, failure(ErrUsage, "the client is closed")
		}
		node := nodes[l.node%len(nodes)]
		w, err = l.client.dial(ctx, node, l.onPush, l.onClose)
		if err == nil {
			l.client.logf("millrace: connected to %s", node)
			l.wire.Store(w)
			if l.closed.Load() {
				w.close("the client was closed")
			}
			return w, nil
		}
		if ctx.Err() != nil {
			return nil, contextError(ctx, "connecting")
		}
		if !errors.Is(err, ErrUnreachable) && !errors.Is(err, ErrStopped) {
			return nil, err
		}
		l.node++
	}
	return nil, err
}

// ask sends a command once.
func (l *link) ask(ctx context.Context, c *command) (any, error) {
	w, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return w.ask(ctx, c, replyTime)
}

// repeat sends a command that may be sent twice, again after each loss of the connection. wait is
// how long the server may wait before it answers; negative: for ever.
func (l *link) repeat(ctx context.Context, c *command, wait time.Duration) (any, error) {
	patience := wait + replyTime
	if wait < 0 {
		patience = 100 * 365 * 24 * time.Hour
	}
	until, pause := time.Now().Add(repeatTime), backoff(pauseLeast)
	for {
		w, err := l.get(ctx)
		if err == nil {
			var reply any
			if reply, err = w.ask(ctx, c, patience); err == nil {
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

// renew makes the next command use a new connection; this one is closed when all replies have come.
func (l *link) renew() {
	if w := l.wire.Swap(nil); w != nil {
		w.retire()
	}
}

func (l *link) close() {
	l.closed.Store(true)
	if w := l.wire.Load(); w != nil {
		w.close("the client was closed")
	}
}
