// A worker with redigo: worker [redis://HOST:PORT]
package main

import (
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gomodule/redigo/redis"
)

const wait = 20 * time.Second // TAKE answers after this at the latest

// A connection serves one goroutine at a time: so beats have another one of the pool. Connections that the pool closes
// would end their leases, so idle ones are kept.
func newPool(url string) *redis.Pool {
	return &redis.Pool{MaxIdle: 2, Dial: func() (redis.Conn, error) {
		return redis.DialURL(url, redis.DialReadTimeout(wait+10*time.Second))
	}}
}

func greet(name string, stop <-chan struct{}) (string, error) {
	select { // a longer job would check this repeatedly
	case <-stop:
		return "", errors.New("cancelled")
	default:
		return "hello, " + name, nil
	}
}

func beat(pool *redis.Pool, id, token string, every time.Duration, ended, stop chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(every):
		}
		conn := pool.Get()
		ids, err := redis.Strings(conn.Do("BEAT", id, token))
		conn.Close()
		if err != nil || len(ids) > 0 {
			close(stop)
			return
		}
	}
}

func work(pool *redis.Pool, conn redis.Conn, job []interface{}) error {
	var id, token, stage, key, body string
	var attempt, left, lease int64
	var state []byte
	if _, err := redis.Scan(job, &id, &token, &stage, &key, &body, &attempt, &left, &state, &lease); err != nil {
		return err
	}
	ended, stop := make(chan struct{}), make(chan struct{})
	go beat(pool, id, token, time.Duration(lease)*time.Millisecond/3, ended, stop)
	result, err := greet(body, stop)
	close(ended)
	if err != nil {
		_, err = conn.Do("FAIL", id, token, err.Error())
	} else {
		_, err = conn.Do("DONE", id, token, "RESULT", result)
	}
	return err // STALE, CANCELLED or EXPIRED: it came too late, and changed nothing
}

// takeOne keeps the connection until the job has ended: the lease belongs to it.
func takeOne(pool *redis.Pool, running chan<- bool) error {
	conn := pool.Get()
	defer conn.Close()
	jobs, err := redis.Values(conn.Do("TAKE", "greetings", "WAIT", wait.Milliseconds()))
	if err != nil {
		return err
	}
	for _, job := range jobs {
		running <- true
		fields, err := redis.Values(job, nil)
		if err == nil {
			err = work(pool, conn, fields)
		}
		running <- false
		if err != nil {
			return err
		}
	}
	return nil
}

// leave ends the program after SIGTERM, when no job runs.
func leave(running <-chan bool) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	busy, stopping := false, false
	for !stopping || busy {
		select {
		case <-stop:
			stopping = true
		case busy = <-running:
		}
	}
	os.Exit(0)
}

func main() {
	url := "redis://127.0.0.1:7411"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	pool, running := newPool(url), make(chan bool)
	go leave(running)
	for {
		if err := takeOne(pool, running); err != nil {
			log.Print(fmt.Errorf("taking: %w", err))
			time.Sleep(time.Second)
		}
	}
}
