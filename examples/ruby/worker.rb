# A worker with redis-rb: ruby worker.rb [redis://HOST:PORT]
require 'redis'

WAIT_S = 20 # TAKE answers after this at the latest: longer silence is a dead connection
url = ARGV[0] || 'redis://127.0.0.1:7411'
# A TAKE that is sent again by the client would lose the jobs of the first one until their leases end.
options = { url: url, read_timeout: WAIT_S + 10, reconnect_attempts: 0 }
CLIENT = Redis.new(**options) # takes; a second one beats meanwhile, for a client is locked while it waits
BEATS = Redis.new(**options)

def greet(name)
  "hello, #{name}"
end

def work(job, token, _stage, _key, body, _attempt, _left, _state, lease_ms, *)
  worker = Thread.current
  beat = Thread.new do
    loop do
      sleep lease_ms / 3000.0
      worker.raise('cancelled') unless BEATS.call('BEAT', job, token).empty?
    end
  end
  words = begin
    ['DONE', job, token, 'RESULT', greet(body.force_encoding('UTF-8'))] # without it bodies are binary
  rescue StandardError => e
    ['FAIL', job, token, e.message]
  end
  beat.kill
  CLIENT.call(*words) # STALE, CANCELLED or EXPIRED: it came too late, and changed nothing
end

running = stopping = false
trap('TERM') { running ? stopping = true : exit } # the running job ends first
until stopping
  begin
    CLIENT.call('TAKE', 'greetings', 'WAIT', 1000 * WAIT_S).each do |job|
      running = true
      work(*job)
    end
  rescue Redis::BaseError => e
    warn e.message
    sleep 1
  ensure
    running = false
  end
end
