package millrace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind says what went wrong. The kinds are errors, for errors.Is(err, millrace.ErrFull).
type Kind string

const (
	// ErrUnreachable: no server answers, or the connection was lost and the outcome is unknown.
	ErrUnreachable Kind = "Unreachable"
	// ErrIncompatible: no Millrace server listens there, or it does not have this command.
	ErrIncompatible Kind = "Incompatible"
	// ErrDenied: the token is missing or wrong, or has no right to do this.
	ErrDenied Kind = "Denied"
	// ErrUsage: the command is wrong; nothing was changed. ErrTooBig is one of these.
	ErrUsage Kind = "Usage"
	// ErrTooBig: a body, key, result or another part is larger than the server allows.
	ErrTooBig Kind = "TooBig"
	// ErrBadBody: a value is not JSON where JSON was asked for, or cannot be turned into JSON.
	ErrBadBody Kind = "BadBody"
	// ErrFull: a limit or a quota is reached; PushOptions.Room waits for room instead.
	ErrFull Kind = "Full"
	// ErrDraining: the stage takes no pushes until it is resumed.
	ErrDraining Kind = "Draining"
	// ErrGone: the server does not have this id or epic (any more).
	ErrGone Kind = "Gone"
	// ErrLeaseLost: the job was given to another worker, so this attempt commits nothing.
	ErrLeaseLost Kind = "LeaseLost"
	// ErrStopped: the server's log has failed, or it still loads; the outcome may be unknown.
	ErrStopped Kind = "Stopped"
	// ErrExpired: the job was not done by its deadline; also context.DeadlineExceeded.
	ErrExpired Kind = "Expired"
	// ErrCancelled: the job was cancelled.
	ErrCancelled Kind = "Cancelled"
	// ErrDead: the job has failed for good.
	ErrDead Kind = "Dead"
	// ErrTimeout: the deadline of the context has passed; also context.DeadlineExceeded.
	ErrTimeout Kind = "Timeout"
	// ErrGap: a numbered push is too far ahead of the first missing number.
	ErrGap Kind = "Gap"
)

func (k Kind) Error() string { return string(k) }

// Error is an error of this package, for errors.As.
type Error struct {
	Kind   Kind
	Reason string // the sentence of the server or of the client
	final  bool   // made by Dead
	vain   bool   // trying again does not help
}

func (e *Error) Error() string {
	if e.final {
		return e.Reason
	}
	return "millrace: " + string(e.Kind) + ": " + e.Reason
}

// Is makes errors.Is hold for the kind, and for what the standard library calls the same.
func (e *Error) Is(target error) bool {
	switch target {
	case e.Kind:
		return true
	case ErrUsage:
		return e.Kind == ErrTooBig
	case context.DeadlineExceeded:
		return e.Kind == ErrExpired || e.Kind == ErrTimeout
	}
	return false
}

func failure(kind Kind, format string, args ...any) *Error {
	return &Error{Kind: kind, Reason: fmt.Sprintf(format, args...)}
}

// Dead is what a handler returns to say that its job has failed for good: it is not tried again.
func Dead(reason string) error { return &Error{Kind: ErrDead, Reason: reason, final: true} }

// Snooze is what a handler returns to give its job back for a while; no attempt is counted.
func Snooze(d time.Duration) error { return snooze(d) }

type snooze time.Duration

func (s snooze) Error() string { return "again in " + time.Duration(s).String() }

var kinds = map[string]Kind{
	"NOAUTH": ErrDenied, "WRONGPASS": ErrDenied, "NOPERM": ErrDenied, "TOOBIG": ErrTooBig,
	"FULL": ErrFull, "GAP": ErrGap, "STALE": ErrLeaseLost, "EXPIRED": ErrExpired,
	"CANCELLED": ErrCancelled, "DEAD": ErrDead, "GONE": ErrGone, "DRAINING": ErrDraining,
	"LOADING": ErrStopped, "STOPPED": ErrStopped,
}

// errorOf is the error that a reply of the server names by its first word.
func errorOf(text string) *Error {
	code, reason, _ := strings.Cut(strings.ToValidUTF8(text, "\uFFFD"), " ")
	kind, known := kinds[code]
	switch {
	case code == "ERR" && strings.HasPrefix(reason, "unknown command"):
		kind = ErrIncompatible
	case !known:
		kind = ErrUsage
	}
	return &Error{Kind: kind, Reason: reason}
}

// contextError is the error of a call whose context has ended.
func contextError(ctx context.Context, what string) error {
	// The deadline may have passed before the timer of the context has noticed: then Err is nil.
	if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return failure(ErrTimeout, "%s was not done before the deadline of its context", what)
	}
	return fmt.Errorf("millrace: %s: %w", what, ctx.Err())
}

// mayRepeat: a command that can be recognised by the server may be sent again.
func mayRepeat(err error) bool {
	var e *Error
	return errors.As(err, &e) && !e.vain && (e.Kind == ErrUnreachable || e.Kind == ErrStopped)
}

func reasonOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return err.Error()
}
