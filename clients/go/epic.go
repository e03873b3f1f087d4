package millrace

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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
	HeldBy   string // why none of its jobs starts
	Stopped  bool   // it was cancelled: no more jobs come

	Waiting, Running, Done, Dead, Cancelled, Expired int64 // jobs
}

// Epic names an epic of a stage; it is made by its first push.
func (c *Client) Epic(stage, name string) *Epic { return &Epic{c, stage, name} }

// Push pushes a number and returns the id of its job; "": it was pushed long ago.
func (e *Epic) Push(ctx context.Context, number int64, body any, o *PushOptions) (string, error) {
	words, err := pushWords(ctx, newCommand("PUSH", e.stage), body, o)
	if err != nil {
		return "", err
	}
	lane := e.client.main
	if o.room() != 0 {
		lane = e.client.lane()
		defer e.client.free(lane)
	}
	reply, err := lane.repeat(ctx, words.add("EPIC", e.name).number(number), o.room())
	if err != nil || reply == nil {
		return "", err
	}
	return fmt.Sprint(reply), nil
}

// Look returns the progress.
func (e *Epic) Look(ctx context.Context) (Progress, error) {
	reply, err := e.client.main.repeat(ctx, e.command(), 0)
	if errors.Is(err, ErrGone) {
		return Progress{Resume: 1, Total: -1}, nil
	}
	return progressOf(reply), err
}

// Wait waits until all jobs have ended, and returns the progress.
func (e *Epic) Wait(ctx context.Context) (Progress, error) {
	return e.wait(ctx, e.command(), func(p Progress) bool {
		whole := p.Total >= 0 && p.Resume > p.Total || p.Stopped
		return whole && p.Waiting+p.Running == 0
	})
}

// WaitLeft waits until at most so many jobs have not ended, so that a producer stays at most so far
// ahead of the workers.
func (e *Epic) WaitLeft(ctx context.Context, left int64) (Progress, error) {
	return e.wait(ctx, e.command("LEFT").number(left), func(p Progress) bool {
		return p.Waiting+p.Running <= left
	})
}

func (e *Epic) wait(ctx context.Context, c *command, over func(Progress) bool) (Progress, error) {
	lane := e.client.lane()
	defer e.client.free(lane)
	c.time("WAIT", waitPiece)
	for {
		reply, err := lane.repeat(ctx, c, waitPiece)
		p := progressOf(reply)
		if err != nil || over(p) {
			return p, err
		}
		if ctx.Err() != nil {
			return p, contextError(ctx, "waiting for an epic of "+e.stage)
		}
	}
}

// End says that number `last` is the last one.
func (e *Epic) End(ctx context.Context, last int64) error {
	return e.do(ctx, e.command("END").number(last))
}

// Then gives a job that is pushed in the commit that ends the epic.
func (e *Epic) Then(ctx context.Context, stage, key string, body any) error {
	data, err := toData(body, "body")
	if err != nil {
		return err
	}
	return e.do(ctx, e.command("THEN", stage, key).data(data))
}

// Cancel cancels those of its jobs that have not ended.
func (e *Epic) Cancel(ctx context.Context) error { return e.do(ctx, e.command("CANCEL")) }

// Skip says that this number is not pushed.
func (e *Epic) Skip(ctx context.Context, number int64) error {
	return e.do(ctx, e.command("SKIP").number(number))
}

// Forget drops the epic this long after its end: at least a second, or 0 to keep it.
func (e *Epic) Forget(ctx context.Context, after time.Duration) error {
	return e.do(ctx, e.command("FORGET").number(after.Milliseconds()))
}

// Drop removes the epic; its jobs stay.
func (e *Epic) Drop(ctx context.Context) error { return e.do(ctx, e.command("DROP")) }

func (e *Epic) command(words ...string) *command {
	return newCommand("EPIC", e.stage, e.name).add(words...)
}

func (e *Epic) do(ctx context.Context, c *command) error {
	_, err := e.client.main.repeat(ctx, c, 0)
	return err
}

func progressOf(reply any) Progress {
	fields, _ := reply.(map[string]any)
	count := func(name string) int64 {
		n, _ := fields[name].(int64)
		return n
	}
	p := Progress{Resume: count("resume"), Total: count("total"), Accepted: count("accepted"),
		Waiting: count("waiting"), Running: count("running"), Done: count("done"),
		Dead: count("dead"), Cancelled: count("cancelled"), Expired: count("expired")}
	p.Stopped = fields["stopped"] == true || count("stopped") != 0
	if held, has := fields["held-by"]; has && held != nil {
		p.HeldBy = fmt.Sprint(held)
	}
	return p
}
