// Plays the cases that stdin has as one document of JSON, all at the same time, and prints their
// outcomes as one line of JSON. tests/peers/secured/cases.py has the fields of both.
const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000))

async function token(login) {
  if (login.token) return { value: login.token }
  const pair = Buffer.from(`${login.user}:${login.password}`).toString('base64')
  const answer = await fetch(login.token_url, {
    method: 'POST',
    headers: { Authorization: `Basic ${pair}` },
    body: new URLSearchParams({ grant_type: 'client_credentials', scope: 'kafka' }),
  })
  return { value: (await answer.json()).access_token }
}

function sasl(login) {
  if (!login) return undefined
  const mechanism = login.mechanism.toLowerCase()
  if (mechanism === 'oauthbearer') return { mechanism, oauthBearerProvider: () => token(login) }
  return { mechanism, username: login.user, password: login.password }
}

const read = (path) => (path ? fs.readFileSync(path) : undefined)

function client(one) {
  const ssl = one.trusted
    ? { ca: [read(one.trusted)], cert: read(one.certificate), key: read(one.key) }
    : undefined
  return new Kafka({
    brokers: one.bootstrap.split(','),
    ssl,
    sasl: sasl(one.login),
    // A session of two seconds is renewed when so much is left of it; the default is ten seconds.
    reauthenticationThreshold: 1500,
    logLevel: logLevel.NOTHING,
    // It tries again whatever the reason is, each time after twice as long.
    // A busy machine shall not look like a broker that does not answer.
    connectionTimeout: 10000,
    authenticationTimeout: 20000,
    retry: { retries: one.action === 'write' ? 2 : 5 },
  })
}

async function create(kafka, topic) {
  const admin = kafka.admin()
  await admin.connect()
  const topics = [{ topic, numPartitions: 1, replicationFactor: 2 }]
  const created = await admin.createTopics({ topics, waitForLeaders: true })
  await admin.disconnect()
  return created
}

async function consume(kafka, { topic, group }, count) {
  const consumer = kafka.consumer({ groupId: group, maxWaitTimeInMs: 500, heartbeatInterval: 500 })
  const values = []
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    // A consumer that is stopped commits what its batches resolved.
    const eachMessage = async ({ message }) => {
      values.push(message.value.toString())
      if (values.length >= count) resolve()
    }
    consumer.run({ eachMessage }).catch(reject)
  })
  await consumer.disconnect()
  return values
}

async function use(one) {
  const kafka = client(one)
  const created = await create(kafka, one.topic)
  const producer = kafka.producer()
  await producer.connect()
  const messages = [...Array(one.count).keys()].map((number) => ({ value: String(number) }))
  await producer.send({ topic: one.topic, messages, acks: -1 })
  const values = await consume(kafka, one, one.count)
  await producer.send({ topic: one.topic, messages: [{ value: one.last }], acks: -1 })
  await producer.disconnect()
  return { created, values, again: await consume(kafka, one, 1), written: one.count + 1 }
}

async function write(one) {
  const producer = client(one).producer()
  try {
    await producer.connect()
    await producer.send({ topic: one.topic, messages: [{ value: 'value' }] })
  } finally {
    await producer.disconnect()
  }
  return { written: 1 }
}

async function stay(one) {
  const kafka = client(one)
  const created = await create(kafka, one.topic)
  const producer = kafka.producer()
  await producer.connect()
  let written = 0
  for (const until = Date.now() + one.seconds * 1000; Date.now() < until; written++) {
    await producer.send({ topic: one.topic, messages: [{ value: 'value' }] })
    await sleep(one.pause)
  }
  await producer.disconnect()
  return { created, written }
}

// What an application is told, and behind it what caused it.
function described(error) {
  const words = []
  for (let one = error; one; one = one.cause) words.push(`${one.name}: ${one.message}`)
  return words.join('; ')
}

// One that stands still is no reason to know nothing of the others.
async function patience() {
  await sleep(70)
  throw new Error('it stood still')
}

async function play(one) {
  const began = Date.now()
  try {
    return await Promise.race([{ use, write, stay }[one.action](one), patience()])
  } catch (error) {
    return { error: described(error), seconds: (Date.now() - began) / 1000 }
  }
}

Promise.all(JSON.parse(fs.readFileSync(0)).map(play)).then((outcomes) => {
  console.log(JSON.stringify(outcomes))
  process.exit(0)
})
