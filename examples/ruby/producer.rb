# A producer with redis-rb: ruby producer.rb [redis://HOST:PORT [NAME…]]
require 'redis'
require 'securerandom'

url, *names = ARGV
client = Redis.new(url: url || 'redis://127.0.0.1:7411', read_timeout: 30) # longer than what AWAIT waits
names = ['world'] if names.empty?
pushes = names.map { |name| ['PUSH', 'greetings', name, 'KEY', name, 'ONCE', SecureRandom.uuid] }

# All pushes in one write. redis-rb sends them again by itself when the connection breaks: ONCE makes each one job.
ids = client.pipelined { |pipeline| pushes.each { |words| pipeline.call(words) } }
ids.each { |id| puts client.call('AWAIT', id, 'WAIT', 20_000) || 'not in time' }
