// Copies a topic in transactions that carry the group's offsets, for ever, or as a module until so
// many records are copied. Any failure ends it: whoever starts it again goes on behind what was
// committed. Usage: node copy.js BOOTSTRAP SOURCE TARGET
const { Kafka, logLevel } = require('kafkajs')

// Brings one batch and the offset behind it, both or neither.
async function copyBatch(producer, groupId, target, batch) {
  const transaction = await producer.transaction()
  const messages = batch.messages.map(({ key, value }) => {
    return { key, value, partition: batch.partition }
  })
  await transaction.send({ topic: target, messages })
  const offset = String(Number(batch.lastOffset()) + 1)
  const topics = [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset }] }]
  await transaction.sendOffsets({ consumerGroupId: groupId, topics })
  await transaction.commit()
  return messages.length
}

// The producer must be connected: from then on the offsets of an earlier one are settled.
async function copy(kafka, producer, groupId, source, target, count) {
  const consumer = kafka.consumer({
    groupId,
    sessionTimeout: 6000,
    heartbeatInterval: 1000,
    maxBytesPerPartition: 1024,
    maxWaitTimeInMs: 500,
  })
  const next = new Map()
  let copied = 0
  await consumer.connect()
  await consumer.subscribe({ topic: source, fromBeginning: true })
  await new Promise((resolve, reject) => {
    const eachBatch = async ({ batch }) => {
      const first = Number(batch.firstOffset())
      const expected = next.get(batch.partition) ?? first
      // Given its partitions anew in the middle of a transaction, it was told where that began.
      if (first !== expected) return reject(new Error(`offset ${first} after ${expected}`))
      next.set(batch.partition, Number(batch.lastOffset()) + 1)
      try {
        copied += await copyBatch(producer, groupId, target, batch)
      } catch (error) {
        reject(error)
        // Never again: its outcome is not known.
        await new Promise(() => {})
      }
      if (copied >= count) resolve()
    }
    consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error))
    consumer.run({ autoCommit: false, eachBatch }).catch(reject)
  })
  await consumer.disconnect()
}

function transactionalProducer(kafka, transactionalId) {
  return kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
}

async function main([bootstrap, source, target]) {
  const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
  const producer = transactionalProducer(kafka, `copy-${target}`)
  await producer.connect()
  await copy(kafka, producer, `copy-${target}`, source, target, Infinity)
}

module.exports = { copy, transactionalProducer }

if (require.main === module) {
  main(process.argv.slice(2)).catch((error) => {
    console.error(error)
    process.exit(1)
  })
}
