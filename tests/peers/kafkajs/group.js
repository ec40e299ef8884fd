// Copies a topic in transactions with kafkajs, reads the copy in a group of two, and administers
// what is left; tells as one line of JSON what it saw.
// Usage: node group.js BOOTSTRAP SOURCE TARGET COUNT; SOURCE is of two partitions and has COUNT records.
const { Kafka, ConfigResourceTypes, logLevel } = require('kafkajs')
const { copy, transactionalProducer } = require('./copy.js')

async function abortOne(producer, groupId, source, target) {
  const transaction = await producer.transaction()
  await transaction.send({ topic: target, messages: [{ value: 'aborted', partition: 0 }] })
  const partitions = [0, 1].map((partition) => ({ partition, offset: '7' }))
  await transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic: source, partitions }] })
  await transaction.abort()
}

// Nobody waits long for what does not come, be it for the next batch or for the end.
const BRISK = { maxWaitTimeInMs: 500, heartbeatInterval: 500 }

// Resolves once the consumer fetches. kafkajs emits GROUP_JOIN before it marks a new member as running,
// and a member that is stopped in between goes on for ever and keeps its partition.
function fetches(consumer) {
  return new Promise((resolve) => {
    const stopListening = consumer.on(consumer.events.FETCH_START, () => {
      stopListening()
      resolve()
    })
  })
}

// Both members must have got a partition, and together every record.
async function readInTwo(kafka, groupId, topic, count) {
  const values = new Set()
  const consumers = [1, 2].map(() => kafka.consumer({ groupId, ...BRISK }))
  const owners = new Set()
  await Promise.all(consumers.map((one) => one.connect()))
  await Promise.all(consumers.map((one) => one.subscribe({ topic, fromBeginning: true })))
  await new Promise((resolve, reject) => {
    const check = () => values.size >= count && owners.size === 2 && resolve()
    consumers.forEach((one, number) => {
      one.on(one.events.CRASH, ({ payload }) => reject(payload.error))
      one.on(one.events.GROUP_JOIN, ({ payload }) => {
        if (payload.memberAssignment[topic] && payload.memberAssignment[topic].length === 1) {
          owners.add(number)
        } else {
          owners.delete(number)
        }
        check()
      })
      const eachMessage = async ({ message }) => {
        values.add(message.value.toString())
        check()
      }
      one.run({ eachMessage }).catch(reject)
    })
  })
  // One leaves after the other: a member that is stopped while it joins again may go on for ever, too.
  const [last, first] = consumers
  const alone = new Promise((resolve) => {
    last.on(last.events.GROUP_JOIN, ({ payload }) => {
      payload.memberAssignment[topic].length === 2 && resolve()
    })
  })
  await fetches(first)
  await first.disconnect()
  await alone
  await fetches(last)
  await last.disconnect()
  return [...values].sort()
}

async function administer(admin, groupId, source) {
  const offsets = async () => {
    const [found] = await admin.fetchOffsets({ groupId, topics: [source] })
    return found.partitions.sort((a, b) => a.partition - b.partition).map((one) => one.offset)
  }
  const committed = await offsets()
  const { groups: listed } = await admin.listGroups()
  const { groups: described } = await admin.describeGroups([groupId])
  await admin.resetOffsets({ groupId, topic: source, earliest: true })
  const reset = await offsets()
  const deleted = await admin.deleteGroups([groupId])
  await admin.createPartitions({ topicPartitions: [{ topic: source, count: 4 }] })
  await admin.deleteTopicRecords({ topic: source, partitions: [{ partition: 0, offset: '5' }] })
  const lows = (await admin.fetchTopicOffsets(source))
    .sort((a, b) => a.partition - b.partition)
    .map((one) => one.low)
  const resource = { type: ConfigResourceTypes.TOPIC, name: source }
  const configEntries = [{ name: 'retention.ms', value: '777000' }]
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries }] })
  const configs = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ ...resource, configNames: ['retention.ms'] }],
  })
  await admin.deleteTopics({ topics: [source] })
  // Who answers may be another broker than the one that deleted it, and learn of it later.
  const until = Date.now() + 20000
  let left = true
  while (left && Date.now() < until) {
    left = (await admin.listTopics()).includes(source)
  }
  return {
    committed,
    reset,
    lows,
    deleted: deleted.map((one) => one.errorCode),
    listed: listed.some((one) => one.groupId === groupId),
    state: described[0].state,
    retention: configs.resources[0].configEntries[0].configValue,
    left,
  }
}

async function main([bootstrap, source, target, count]) {
  const kafka = new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING })
  const groupId = `copy-${source}`
  const producer = transactionalProducer(kafka, groupId)
  await producer.connect()
  await abortOne(producer, groupId, source, target)
  await copy(kafka, producer, groupId, source, target, Number(count))
  await producer.disconnect()
  const values = await readInTwo(kafka, `read-${target}`, target, Number(count))
  const admin = kafka.admin()
  await admin.connect()
  const administered = await administer(admin, groupId, source)
  await admin.disconnect()
  console.log(JSON.stringify({ values, ...administered }))
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error)
  process.exit(1)
})
