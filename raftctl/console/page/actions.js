// What a person can do to the cluster, each with what it will do. The server decides who may.

import { openAction, pairs, numbers, Mistake } from "./dialogs.js";

export function createTopic(done) {
  openAction({
    title: "Create a topic",
    action: "create-topic",
    validate: true,
    fields: [
      { name: "name", label: "Name", required: true },
      { name: "partitions", label: "Partitions", type: "number", hint: "Empty: num.partitions of the cluster." },
      { name: "replication_factor", label: "Replication factor", type: "number", hint: "Empty: default.replication.factor of the cluster." },
      { name: "configs", label: "Configs", type: "textarea", hint: "One key=value a line, as cleanup.policy=compact." },
    ],
    body: (given) => ({ ...given, configs: pairs(given.configs, "configs") }),
    done,
  });
}

export function deleteTopic(name, done) {
  openAction({
    title: `Delete topic ${name}`,
    button: "Delete topic",
    action: "delete-topic",
    consequences: "All its records are lost, on every broker, at once. Consumers and producers of it fail. There is no way back.",
    confirm: name,
    body: () => ({ name }),
    done,
  });
}

export function createPartitions(topic, partitions, done) {
  openAction({
    title: `Add partitions to ${topic}`,
    button: "Add partitions",
    action: "create-partitions",
    validate: true,
    consequences: "Keys go to other partitions from then on, so the order of records of one key breaks once. Partitions cannot be taken away again.",
    fields: [{ name: "count", label: "Partitions in all", type: "number", value: partitions + 1, required: true }],
    body: ({ count }) => ({ topic, count }),
    done,
  });
}

export function alterConfig(type, name, config, done) {
  openAction({
    title: config ? `Change ${config.name}` : "Set a config",
    button: "Change",
    action: "alter-configs",
    validate: true,
    lead: `${type} ${name}`,
    consequences: config?.documentation || "It takes effect at once, on every broker.",
    fields: [
      ...(config ? [] : [{ name: "key", label: "Name", required: true }]),
      { name: "value", label: "Value", value: config?.value ?? "", empty: true, hint: config?.sensitive ? "A secret: the present value is not shown." : null },
      { name: "remove", label: "Remove, so that the default holds", type: "checkbox" },
    ],
    body: ({ key, value, remove }) => {
      const of = config?.name ?? key;
      return { type, name, ...(remove ? { remove: [of] } : { set: { [of]: value } }) };
    },
    done,
  });
}

export function electLeaders(topic, partition, done) {
  const all = topic === null;
  openAction({
    title: all ? "Elect preferred leaders" : `Elect a leader of ${topic}-${partition}`,
    button: "Elect",
    action: "elect-leaders",
    consequences: "Preferred: the first replica leads again if it is in sync; clients find the new leader within a request. Unclean: a replica out of sync may lead, and records that were acknowledged may be lost.",
    fields: all ? [] : [{ name: "election", label: "Election", type: "select", options: ["preferred", "unclean"], value: "preferred" }],
    body: ({ election }) => ({ election: election ?? "preferred", partitions: all ? null : [{ topic, partition }] }),
    done,
  });
}

export function reassign(topic, partition, replicas, done) {
  openAction({
    title: `Reassign ${topic}-${partition}`,
    button: "Reassign",
    action: "reassign",
    consequences: "The new replicas copy the whole partition, which takes network and disk. The first one becomes the preferred leader.",
    fields: [{ name: "replicas", label: "Brokers, in order of preference", value: replicas.join(", "), required: true, hint: "Ids with commas: 1, 2, 3." }],
    body: (given) => ({ partitions: [{ topic, partition, replicas: numbers(given.replicas, "replicas") }] }),
    done,
  });
}

export function cancelReassignment(topic, partition, done) {
  openAction({
    title: `Cancel the reassignment of ${topic}-${partition}`,
    button: "Cancel the reassignment",
    action: "cancel-reassignment",
    consequences: "The replicas that were being added are removed; those from before stay.",
    body: () => ({ partitions: [{ topic, partition }] }),
    done,
  });
}

export function deleteRecords(topic, partition, done) {
  openAction({
    title: `Delete records of ${topic}-${partition}`,
    button: "Delete records",
    action: "delete-records",
    consequences: "All records before the offset are lost for every consumer.",
    confirm: topic,
    fields: [{ name: "before", label: "Before offset", type: "number", required: true, hint: "-1 is the high watermark: all that consumers can see." }],
    body: ({ before }) => ({ topic, partition, before }),
    done,
  });
}

export function resetOffsets(group, topics, done) {
  openAction({
    title: `Reset offsets of ${group}`,
    button: "Reset offsets",
    action: "reset-offsets",
    validate: true,
    consequences: "The group reads again, or skips, all records in between. It must have no active member.",
    confirm: group,
    fields: [
      { name: "topic", label: "Topic", type: topics.length ? "select" : "text", options: topics, value: topics[0], required: true },
      { name: "partitions", label: "Partitions", hint: "As 0, 2-4. Empty: all." },
      { name: "to", label: "To", value: "earliest", required: true, hint: "earliest, latest, an offset, or @ and a time as 2026-11-23T10:00:00." },
    ],
    body: (given) => ({ group, topic: given.topic, partitions: given.partitions ? numbers(given.partitions, "partitions") : null, to: place(given.to, "to") }),
    done,
  });
}

// "earliest", "latest", an offset, or "@" with milliseconds or a time in words of ISO 8601.
export function place(text, field) {
  const given = String(text ?? "").trim();
  if (!given.startsWith("@")) return given;
  const rest = given.slice(1).trim();
  const at = /^\d+$/.test(rest) ? Number(rest) : Date.parse(rest);
  if (Number.isNaN(at)) throw new Mistake(`“${rest}” is no time: write 2026-11-23T10:00:00.`, field);
  return `@${at}`;
}

export function deleteGroup(group, done) {
  openAction({
    title: `Delete group ${group}`,
    button: "Delete group",
    action: "delete-group",
    consequences: "Its committed offsets are lost: a consumer that comes back starts where auto.offset.reset says. It must have no active member.",
    confirm: group,
    body: () => ({ group }),
    done,
  });
}

export function removeMember(group, member, done) {
  openAction({
    title: "Remove a member",
    button: "Remove member",
    action: "remove-member",
    lead: `${member.id} of ${group}`,
    consequences: "Its partitions go to the other members. A member that still runs joins again, so stop it first.",
    confirm: member.instance || member.client_id || member.id,
    body: () => ({ group, member: member.id, instance: member.instance ?? null }),
    done,
  });
}

export function createAcl(done) {
  openAction({
    title: "Create a rule",
    action: "create-acl",
    consequences: "It holds at once. A DENY wins over every ALLOW.",
    fields: [
      { name: "principal", label: "Principal", value: "User:", required: true },
      { name: "host", label: "Host", value: "*", required: true },
      { name: "operation", label: "Operation", type: "select", options: ["ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS"], value: "READ" },
      { name: "permission", label: "Permission", type: "select", options: ["ALLOW", "DENY"], value: "ALLOW" },
      { name: "resource_type", label: "Resource", type: "select", options: ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"], value: "TOPIC" },
      { name: "resource_name", label: "Name of the resource", required: true, hint: "kafka-cluster for the cluster; * for every one." },
      { name: "pattern_type", label: "Pattern", type: "select", options: ["LITERAL", "PREFIXED"], value: "LITERAL" },
    ],
    body: (given) => given,
    done,
  });
}

export function deleteAcl(rule, done) {
  openAction({
    title: "Delete a rule",
    button: "Delete rule",
    action: "delete-acl",
    lead: `${rule.permission} ${rule.operation} on ${rule.resource_type} ${rule.resource_name} (${rule.pattern_type}) from ${rule.host}`,
    consequences: rule.permission === "DENY" ? "What it forbade may be allowed by other rules from now on." : "The principal loses this right at once.",
    confirm: rule.principal,
    body: () => rule,
    done,
  });
}

export function alterQuota(quota, done) {
  const parts = ["user", "client_id", "ip"];
  openAction({
    title: quota ? "Change a quota" : "Set a quota",
    button: "Set",
    action: "alter-quota",
    consequences: "Clients above the limit are slowed down from their next request on.",
    fields: [
      { name: "user", label: "User", value: quota?.user, hint: "<default> for all users without their own." },
      { name: "client_id", label: "Client id", value: quota?.client_id },
      { name: "ip", label: "IP address", value: quota?.ip, hint: "Alone, with connection_creation_rate." },
      { name: "key", label: "Limit", type: "select", options: ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"], value: quota?.key ?? "producer_byte_rate" },
      { name: "value", label: "Value", type: "number", value: quota?.value, hint: "Bytes a second, percent or a rate a second. Empty removes the quota." },
    ],
    body: (given) => {
      if (parts.every((part) => given[part] === null)) throw new Mistake("Name a user, a client id or an IP address.", "user");
      return given;
    },
    done,
  });
}

export function abortTransaction(row, done) {
  openAction({
    title: "Abort a transaction",
    button: "Abort transaction",
    action: "abort-transaction",
    lead: `${row.transactional_id ?? `${row.topic}-${row.partition}`}, producer ${row.producer_id}`,
    consequences: "Its records become invisible to consumers that read committed ones. A producer that still runs is fenced.",
    confirm: row.transactional_id ?? row.topic,
    body: () => (row.transactional_id === null ? { topic: row.topic, partition: row.partition } : { transactional_id: row.transactional_id }),
    done,
  });
}

export function unregisterBroker(broker, done) {
  openAction({
    title: `Unregister broker ${broker}`,
    button: "Unregister",
    action: "unregister-broker",
    consequences: "The cluster forgets the broker. Do this only with a broker that is gone for good: its replicas must be reassigned too.",
    confirm: String(broker),
    body: () => ({ broker }),
    done,
  });
}
