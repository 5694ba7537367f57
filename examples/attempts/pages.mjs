// Reads five pages that cost money, asks a person, and reports. Killed at any moment it goes on where it was.
// It speaks to its worker over the socket itself: one line of JSON each way, see docs/ATTEMPTS.md.
import fs from 'node:fs'
import net from 'node:net'

const PAGES = 5

class Refused extends Error {
  constructor(reply) {
    super(`[${reply.error.code}] ${reply.error.message}`)
    this.code = reply.error.code
    this.exit = reply.exit
  }
}

// One connection, one request at a time.
class Worker {
  constructor(path, token) {
    this.token = token
    this.received = Buffer.alloc(0)
    this.socket = net.createConnection(path)
    this.socket.on('data', (data) => {
      this.received = Buffer.concat([this.received, data])
      this.wake?.()
    })
    this.socket.on('error', (error) => this.fail(error))
    this.socket.on('close', () => this.fail(new Error('the worker hung up')))
  }

  fail(error) {
    this.broken ??= error
    this.wake?.()
  }

  async atLeast(isThere) {
    while (!isThere()) {
      if (this.broken) throw this.broken
      await new Promise((resolve) => { this.wake = resolve })
    }
  }

  take(size) {
    const taken = this.received.subarray(0, size)
    this.received = this.received.subarray(size)
    return taken
  }

  // Resolves to the reply, with the bytes behind it as `payload`.
  async ask(op, fields = {}, payload = null) {
    const request = { v: 1, token: this.token, op, ...fields }
    if (payload !== null) request.bytes = payload.length
    this.socket.write(JSON.stringify(request) + '\n')
    if (payload !== null) this.socket.write(payload)
    await this.atLeast(() => this.received.includes(10))
    const line = this.take(this.received.indexOf(10) + 1)
    const reply = JSON.parse(line.toString('utf8'))
    if (!reply.ok) throw new Refused(reply)
    const size = reply.bytes ?? 0
    await this.atLeast(() => this.received.length >= size)
    reply.payload = Buffer.from(this.take(size))
    return reply
  }
}

const worker = new Worker(process.env.FENCEPOST_SOCKET, process.env.FENCEPOST_TOKEN)
const show = (reply) => console.log(JSON.stringify({ ...reply, payload: undefined }))

// What an earlier attempt has checkpointed; `number` 0 says that there was none.
const saved = await worker.ask('resume', { optional: true })
const texts = saved.number === 0 ? [] : JSON.parse(saved.payload)

for (let page = texts.length + 1; page <= PAGES; page++) {
  await worker.ask('heartbeat', { note: `page ${page} of ${PAGES}` })
  await new Promise((resolve) => setTimeout(resolve, 200))
  texts.push(`text of page ${page}`)
  // A receipt is booked once, however often it is said: after a kill nobody knows whether it was said already. A real
  // one is the provider's id of the payment; this one holds its order, so that another run pays for itself.
  const amounts = { calls: 1, money: { USD: '0.001' } }
  for (let time = 0; time < 2; time++) {
    const receipt = `${process.env.FENCEPOST_WORK_ORDER}-page-${page}`
    show(await worker.ask('charge', { receipt, provider: 'pages', amounts }))
  }
  // Refused, unless this attempt goes on from the last checkpoint of its order.
  show(await worker.ask('checkpoint', { builds_on: page - 1 }, Buffer.from(JSON.stringify(texts))))
}
fs.writeFileSync('pages.txt', texts.join('\n') + '\n')
show(await worker.ask('artifact', { path: 'pages.txt' }))

const { answered, value } = await worker.ask('answer', { question: 'publish', optional: true })
if (answered) {
  fs.writeFileSync('report.txt', `${PAGES} pages, publish: ${value}\n`)
} else {
  // Waiting holds nothing: this attempt ends here, and the next one starts when the answer is there.
  await worker.ask('yield', { question: 'publish', prompt: `Publish the ${PAGES} pages?` })
}
worker.socket.destroy()
