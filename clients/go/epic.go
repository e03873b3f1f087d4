package millrace

import (
	"context"
	"encoding/json"
	"errors"
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
	HeldBy   string `json:"held-by"` // why none of its jobs starts
	Stopped  bool   // it was cancelled: no more jobs come

	Waiting, Running, Done, Dead, Cancelled, Expired int64 // jobs
}

// Epic names an epic of a stage; it is made by its first push.
func (c *Client) Epic(stage, name string) *Epic { return &Epic{c, stage, name} }

// Push pushes a number and returns the id of its job; "": it was pushed long ago.
func (e *Epic) Push(ctx context.Context, number int64, body any,
	options *PushOptions) (string, error) {
	o := given(options)
	lane, free := e.client.lane(ctx, o.Room)
	defer free()
	words := append(pushWords(ctx, "PUSH", e.stage, body, o), "EPIC", e.name, number)
	reply, err := lane.repeat(ctx, o.Room, words...)
	return idOf(reply), err
}

// Look returns the progress.
func (e *Epic) Look(ctx context.Context) (Progress, error) {
	reply, err := e.client.main.repeat(ctx, 0, "EPIC", e.stage, e.name)
	if errors.Is(err, ErrGone) {
		return Progress{Resume: 1, Total: -1}, nil
	}
	return progressOf(reply), err
}

// Wait waits until all jobs have ended, and returns the progress.
func (e *Epic) Wait(ctx context.Context) (Progress, error) {
	return e.wait(ctx, func(p Progress) bool {
		whole := p.Total >= 0 && p.Resume > p.Total || p.Stopped
		return whole && p.Waiting+p.Running == 0
	})
}

// WaitLeft waits until at most so many jobs have not ended, so that a producer stays at most so far
// ahead of the workers.
func (e *Epic) WaitLeft(ctx context.Context, left int64) (Progress, error) {
	return e.wait(ctx, func(p Progress) bool { return p.Waiting+p.Running <= left }, "LEFT", left)
}

func (e *Epic) wait(ctx context.Context, over func(Progress) bool, more ...any) (Progress, error) {
	lane, free := e.client.lane(ctx, waitPiece)
	defer free()
	words := append(append([]any{"EPIC", e.stage, e.name}, more...), "WAIT", waitPiece)
	for {
		reply, err := lane.repeat(ctx, waitPiece, words...)
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
func (e *Epic) End(ctx context.Context, last int64) error { return e.do(ctx, "END", last) }

// Then gives a job that is pushed in the commit that ends the epic.
func (e *Epic) Then(ctx context.Context, stage, key string, body any) error {
	return e.do(ctx, "THEN", stage, key, toData(body, "body"))
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
	_, err := e.client.main.repeat(ctx, 0, append([]any{"EPIC", e.stage, e.name}, words...)...)
	return err
}

// progressOf reads the fields that have the names of a Progress.
func progressOf(reply any) (p Progress) {
	fields, _ := texts(reply).(map[string]any)
	if text, err := json.Marshal(fields); err == nil {
		_ = json.Unmarshal(text, &p) // what is of another type stays zero
	}
	p.Stopped = fields["stopped"] == int64(1) || fields["stopped"] == true
	return p
}
