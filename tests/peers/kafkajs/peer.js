// Writes records with kafkajs and tells, as one line of JSON, what it was answered.
// Usage: node peer.js BOOTSTRAP TOPIC COUNT CODEC(none|gzip); reading needs a group in kafkajs.
const { CompressionTypes, Kafka, logLevel } = require('kafkajs')

async function main([bootstrap, topic, count, codec]) {
  const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.ERROR })
  const admin = kafka.admin()
  await admin.connect()
  const created = await admin.createTopics({
    topics: [{ topic, numPartitions: 2, replicationFactor: 3 }],
    waitForLeaders: true,
  })
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
  const cluster = await admin.describeCluster()

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const messages = [...Array(Number(count)).keys()].map((number) => ({
    key: `key ${number}`,
    value: number === 0 ? null : `value ${number}`,
    headers: { number: String(number) },
    timestamp: String(1700000000000 + number),
    partition: number % 2,
  }))
  const answers = await producer.send({
    topic,
    messages,
    acks: -1,
    compression: codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None,
  })
  await producer.disconnect()
  const offsets = await admin.fetchTopicOffsets(topic)
  await admin.disconnect()
  console.log(JSON.stringify({ created, metadata, cluster, answers, offsets }))
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error)
  process.exit(1)
})
