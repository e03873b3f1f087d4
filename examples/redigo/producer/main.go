// A producer with redigo: producer [redis://HOST:PORT [NAME…]]
package main

import (
	"crypto/rand"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
)

type push struct{ name, once string }

// pushAll sends all pushes in one write. redigo sends nothing twice: when a reply is lost, main repeats them, and ONCE
// makes each one job.
func pushAll(conn redis.Conn, pushes []push) (ids []string, err error) {
	for _, p := range pushes {
		if err := conn.Send("PUSH", "greetings", p.name, "KEY", p.name, "ONCE", p.once); err != nil {
			return nil, err
		}
	}
	if err := conn.Flush(); err != nil {
		return nil, err
	}
	for range pushes {
		id, err := redis.String(conn.Receive())
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

func pushAndAwait(url string, pushes []push) error {
	conn, err := redis.DialURL(url, redis.DialReadTimeout(30*time.Second)) // longer than what AWAIT waits
	if err != nil {
		return err
	}
	defer conn.Close()
	ids, err := pushAll(conn, pushes)
	if err != nil {
		return err
	}
	for _, id := range ids {
		result, err := redis.String(conn.Do("AWAIT", id, "WAIT", 20000)) // ErrNil: not in time
		if err != nil {
			return err
		}
		fmt.Println(result)
	}
	return nil
}

func main() {
	url, names := "redis://127.0.0.1:7411", []string{"world"}
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if len(os.Args) > 2 {
		names = os.Args[2:]
	}
	var pushes []push
	for _, name := range names {
		var once [16]byte
		if _, err := rand.Read(once[:]); err != nil {
			log.Fatal(err)
		}
		pushes = append(pushes, push{name, fmt.Sprintf("%x", once)})
	}
	for tries := 1; ; tries++ {
		err := pushAndAwait(url, pushes)
		if err == nil {
			return
		}
		if _, refused := err.(redis.Error); refused || tries == 3 {
			log.Fatal(err)
		}
	}
}
